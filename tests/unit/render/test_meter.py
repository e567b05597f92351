"""Bytes that move, on a terminal and in a log."""

from __future__ import annotations

import io
import itertools
import json

from coldsnap.render.progress import ProgressMode
from coldsnap.render.progress.meter import Meter


def shown(mode: ProgressMode, *calls: tuple[int, int], seconds: float = 20) -> str:
    stream = io.StringIO()
    clock = itertools.count(0, seconds)
    with Meter(mode, stream, "verify", lambda: next(clock)) as meter:
        for call in calls:
            meter(*call)
    return stream.getvalue()


def test_a_log_gets_a_line_now_and_then() -> None:
    text = shown(ProgressMode.AUTO, (0, 1 << 30), (1 << 29, 1 << 30))
    assert text == "verify  0.0/1.0 GiB  0 B/s\nverify  0.5/1.0 GiB  13 MB/s  0:40 left\n"
    assert shown(ProgressMode.PLAIN, (1, 2), seconds=1) == ""


def test_a_terminal_gets_one_line_that_goes() -> None:
    text = shown(ProgressMode.TTY, (1 << 29, 1 << 30), seconds=1)
    assert text.startswith("\r[############------------] verify  0.5/1.0 GiB  537 MB/s  0:01 left")
    assert text.endswith("\r\x1b[K")
    assert "\n" not in text


def test_programs_get_json_and_none_is_none() -> None:
    line = json.loads(shown(ProgressMode.JSON, (5, 10)))
    assert line == {
        "event": "progress", "message": "verify", "done": 5, "total": 10, "unit": "bytes",
    }  # fmt: skip
    assert shown(ProgressMode.NONE, (5, 10)) == ""
