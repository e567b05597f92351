"""Progress: rows and rates, plain lines and signs of life, NDJSON, live rows."""

from __future__ import annotations

import io
import json
import re

import pytest

from coldsnap.artifact.errors import ColdSnapError
from coldsnap.engine.events import Kind, RunEvent
from coldsnap.engine.preview import InstanceKey
from coldsnap.render.progress import ProgressMode, open_progress
from coldsnap.render.progress.live import LiveProgress
from coldsnap.render.progress.ndjson import JsonProgress
from coldsnap.render.progress.plain import PlainProgress
from coldsnap.render.progress.rows import Tracker

KEY = InstanceKey("restore.stage", "gpu-1", "u0")


def event(kind: Kind, key: InstanceKey | None = KEY, **more) -> RunEvent:
    return RunEvent(kind, "01RUN", 1.8e9, key, **more)


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class Gone(io.StringIO):
    def write(self, text: str) -> int:
        raise BrokenPipeError


def lines(stream: io.StringIO) -> list[str]:
    """What was written, without the times of day."""
    return [re.sub(r"^\d\d:\d\d:\d\d ", "", line) for line in stream.getvalue().splitlines()]


def test_rate_and_time_left_come_from_the_last_seconds() -> None:
    clock = Clock()
    tracker = Tracker(clock)
    tracker.take(event(Kind.STEP_STARTED, message="stage 2 files"))
    for second in range(10):
        clock.now = 100.0 + second
        # Slow at first, then 100 MB/s: the old samples must not count.
        done = second if second < 5 else (second - 4) * 100_000_000
        tracker.take(event(Kind.STEP_PROGRESS, message="capsule", done=done, total=1_000_000_000))
    row = tracker.rows[KEY]
    assert row.per_second == pytest.approx(100e6, rel=0.01)
    assert row.seconds_left == pytest.approx(5.0, rel=0.01)
    assert row.fraction == 0.5
    assert row.amount() == "477/954 MiB  100 MB/s"


def test_a_row_ends_with_its_step() -> None:
    tracker = Tracker(Clock())
    tracker.take(event(Kind.STEP_STARTED))
    assert KEY in tracker.rows
    tracker.take(event(Kind.STEP_DONE, state="changed"))
    assert not tracker.rows


def test_plain_says_one_line_per_transition() -> None:
    stream = io.StringIO()
    progress = PlainProgress(stream)
    with progress:
        progress(event(Kind.RUN_STARTED, None))
        progress(event(Kind.STEP_OBSERVED))
        progress(event(Kind.STEP_STARTED, message="stage 2 files"))
        progress(event(Kind.STEP_PROGRESS, message="capsule"))
        progress(event(Kind.STEP_PROGRESS, message="capsule", done=1, total=9))
        progress(event(Kind.STEP_RETRY, attempt=1, error=ColdSnapError("a.b", "lost")))
        progress(event(Kind.STEP_DONE, state="changed", seconds=2.04))
        progress(event(Kind.STEP_DONE, InstanceKey("x", "gpu-1"), state="unchanged"))
        progress(event(Kind.STEP_FAILED, error=ColdSnapError("a.b", "no\x1b[2J"), seconds=1))
        progress(event(Kind.STEP_RECOVERING))
        progress(event(Kind.STEP_RECOVERED, seconds=0.5))
        progress(event(Kind.CANCELLING, None))
        progress(event(Kind.RUN_FINISHED, None, state="recovered", seconds=12))
    assert lines(stream) == [
        "run 01RUN started",
        "gpu-1 restore.stage u0: stage 2 files",
        "gpu-1 restore.stage u0: capsule",
        "gpu-1 restore.stage u0: try 1 failed, it is tried again: error[a.b] lost",
        "gpu-1 restore.stage u0: done  2 s",
        "gpu-1 restore.stage u0: failed  1 s: error[a.b] no?[2J",
        "gpu-1 restore.stage u0: putting back",
        "gpu-1 restore.stage u0: put back  0.5 s",
        (
            "cancelling: running steps are finished or undone, please wait"
            " (Ctrl-C again stops at once)"
        ),
        "run 01RUN failed, put back in 12 s",
    ]


def test_plain_gives_a_sign_of_life_every_ten_seconds() -> None:
    clock, stream = Clock(), io.StringIO()
    progress = PlainProgress(stream, monotonic=clock)
    progress(event(Kind.STEP_STARTED, message="dump"))
    for clock.now in (105.0, 109.9, 110.0, 115.0, 120.0):
        progress.beat()
    assert lines(stream)[1:] == [
        "gpu-1 restore.stage u0: still running (10 s)  dump",
        "gpu-1 restore.stage u0: still running (20 s)  dump",
    ]


def test_a_sign_of_life_of_the_engine_is_no_news() -> None:
    stream = io.StringIO()
    with PlainProgress(stream) as progress:
        progress(event(Kind.STEP_STARTED, message="dump"))
        progress(event(Kind.STEP_PROGRESS, state="heartbeat", message="still running"))
    assert lines(stream) == ["gpu-1 restore.stage u0: dump"]


def test_verbose_tells_what_had_nothing_to_do() -> None:
    stream = io.StringIO()
    with PlainProgress(stream, verbose=True) as progress:
        progress(event(Kind.STEP_DONE, state="unchanged"))
        progress(event(Kind.STEP_SKIPPED, message="when is false"))
    assert lines(stream) == [
        "gpu-1 restore.stage u0: nothing to do",
        "gpu-1 restore.stage u0: skipped: when is false",
    ]


def test_json_lines_can_be_read_back() -> None:
    stream = io.StringIO()
    progress = JsonProgress(stream)
    progress(event(Kind.STEP_PROGRESS, message="capsule", done=1, total=9))
    progress(event(Kind.STEP_FAILED, error=ColdSnapError("a.b", "no"), attempt=2))
    first, second = (json.loads(line) for line in stream.getvalue().splitlines())
    assert first == {
        "format": 1,
        "kind": "coldsnap-run-event",
        "event": "step-progress",
        "run": "01RUN",
        "time": 1.8e9,
        "step": "restore.stage",
        "host": "gpu-1",
        "unit": "u0",
        "message": "capsule",
        "done": 1,
        "total": 9,
        "unit_of_measure": "B",
    }
    assert second["error"]["code"] == "a.b"
    assert second["attempt"] == 2


@pytest.mark.parametrize("mode", ["plain", "json"])
def test_a_reader_that_went_away_stops_nothing(mode: str) -> None:
    with open_progress(ProgressMode(mode), Gone()) as progress:
        progress(event(Kind.STEP_STARTED))
        progress(event(Kind.STEP_DONE, state="changed"))


def test_auto_is_plain_when_piped() -> None:
    assert isinstance(open_progress(ProgressMode.AUTO, io.StringIO()), PlainProgress)


def test_live_shows_rows_while_running_and_keeps_what_ended(monkeypatch) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    stream = io.StringIO()
    with LiveProgress(stream, color=False) as progress:
        progress(event(Kind.STEP_STARTED, message="stage"))
        progress(event(Kind.STEP_PROGRESS, message="capsule", done=512 << 20, total=1 << 30))
        progress._live.refresh()
        progress(event(Kind.STEP_DONE, state="changed", seconds=2))
    shown = re.sub(r"\x1b\[[0-9?;]*[a-zA-Z]", "", stream.getvalue())
    assert "gpu-1  restore.stage u0  capsule" in shown
    assert "█████████░░░░░░░░░  0.5/1.0 GiB" in shown
    assert "done  2 s" in shown


def test_none_is_silent(capsys) -> None:
    with open_progress(ProgressMode.NONE, io.StringIO()) as progress:
        progress(event(Kind.STEP_STARTED))
    assert capsys.readouterr() == ("", "")
