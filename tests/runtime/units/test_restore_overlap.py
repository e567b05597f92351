"""What goes on beside CRIU at a restore, and what fails there while CRIU already runs."""

from __future__ import annotations

import errno
import json
import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from unit_workplace import Workplace, counter
from waiting import wait_for

from coldsnap.artifact.errors import ColdSnapError
from coldsnap_runtime.beside import Beside
from coldsnap_runtime.context import Cancelled
from coldsnap_runtime.timing import Timing, boottime

_MANY = 4000
"""Files: CRIU reaches its first process long before so many are made."""


@pytest.fixture
def image(workplace: Workplace) -> Path:
    """A capture of the counter, which serves on."""
    record = workplace.serve(workplace.script("counter.py", counter()))
    return Path(workplace.checkpoint(record)["capture_dir"])


def _add(image: Path, last: dict[str, Any]) -> None:
    """Many small files to the captured /tmp, and one entry after them."""
    index = image / "files" / "tmp.json"
    value = json.loads(index.read_text())
    owner = {"uid": 0, "gid": 0, "mtime_ns": 1}
    for number in range(_MANY):
        entry = {"path": f"many-{number}", "type": "file", "mode": 0o600, "size": 0, "extents": []}
        value["entries"].append({**entry, **owner})
    value["entries"].append({**last, **owner})
    index.chmod(0o600)
    index.write_text(json.dumps(value))


@pytest.mark.criu
def test_files_are_all_there_before_a_process_is(workplace: Workplace, image: Path) -> None:
    last = {"path": "last", "type": "dir", "mode": 0o711}
    _add(image, last)
    timing = Timing()
    record = workplace.restore(image, timing=timing)
    assert workplace.ask(record)["n"] > 0
    tmp = workplace.store.paths("u0", record.generation).tmp
    assert (tmp / f"many-{_MANY - 1}").is_file()
    assert (tmp / "last").stat().st_mode & 0o777 == 0o711
    spans = {span["name"]: span for span in timing.to_json()["spans"]}
    files, namespaces, criu = (spans[name] for name in ("files", "namespaces", "criu-restore"))
    assert files["parent"] == spans["ladder"]["id"]
    end = files["start_offset_seconds"] + files["duration_seconds"]
    assert end > namespaces["start_offset_seconds"] + namespaces["duration_seconds"]
    assert end < criu["start_offset_seconds"] + criu["duration_seconds"]


@pytest.mark.criu
@pytest.mark.parametrize("mode", ["auto", "plain"])
def test_a_damaged_file_found_while_criu_runs(workplace: Workplace, image: Path, mode: str) -> None:
    _add(image, {"path": "../outside", "type": "dir", "mode": 0o700})
    with pytest.raises(ColdSnapError) as caught:
        workplace.restore(image, image_mode=mode)
    assert caught.value.code == "image.file-set-damaged"
    assert "../outside" in caught.value.message
    # CRIU had been started: it left its log.
    assert (workplace.store.unit_dir("u0") / "restore-failed.log").is_file()
    records = workplace.store.generations("u0")
    assert [record.generation for record in records] == [1]
    assert workplace.ask(records[0])["n"] > 0  # what served before serves on
    assert not list(workplace.state_dir.glob("units/u0/2*"))
    assert not (workplace.state_dir / "units" / "outside").exists()


@pytest.mark.criu
def test_a_cancel_while_files_are_put_back(workplace: Workplace, image: Path) -> None:
    _add(image, {"path": "last", "type": "dir", "mode": 0o700})
    before = signal.signal(signal.SIGALRM, lambda *_: workplace.context.cancel())
    begun = workplace.store.paths("u0", 2).tmp / "many-0"

    def cancel() -> None:
        wait_for(begun.exists, "files to be put back")
        os.kill(os.getpid(), signal.SIGALRM)

    watcher = threading.Thread(target=cancel)
    watcher.start()
    try:
        with pytest.raises(Cancelled):
            workplace.restore(image)
    finally:
        watcher.join()
        signal.signal(signal.SIGALRM, before)
    assert [record.generation for record in workplace.store.generations("u0")] == [1]
    time.sleep(0.1)
    assert not list(workplace.state_dir.glob("units/u0/2*")), "nobody goes on writing"


def test_what_is_beside_is_waited_for_once() -> None:
    timing = Timing()
    with timing.span("outer"):
        work = Beside("files", lambda: time.sleep(0.05), timing)
        begun = boottime()
    work.wait()
    work.wait()
    work.end()
    assert boottime() - begun < 5
    (outer, files) = timing.to_json()["spans"]
    assert (files["name"], files["parent"]) == ("files", outer["id"])
    assert files["duration_seconds"] >= 0.05


def test_what_is_raised_beside_is_raised_here() -> None:
    def refuse() -> None:
        raise ColdSnapError("image.file-set-damaged", "bad", details=("d",), remedy="r")

    def run_full() -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "/x")

    def fail() -> None:
        raise KeyError("odd")

    with pytest.raises(ColdSnapError, match="bad") as refused:
        Beside("files", refuse, Timing()).wait()
    assert (refused.value.details, refused.value.remedy) == (("d",), "r")
    with pytest.raises(OSError, match="No space left") as full:
        Beside("files", run_full, Timing()).wait()
    assert (full.value.errno, full.value.filename) == (errno.ENOSPC, "/x")
    with pytest.raises(ColdSnapError, match="KeyError"):
        Beside("files", fail, Timing()).wait()


def test_one_that_is_killed_or_ended() -> None:
    killed = Beside("files", lambda: time.sleep(60), Timing())
    os.kill(killed._pid, signal.SIGKILL)
    with pytest.raises(ColdSnapError, match="was killed"):
        killed.wait()
    ended = Beside("files", lambda: time.sleep(60), Timing())
    pid = ended._pid
    ended.end()
    wait_for(lambda: not Path(f"/proc/{pid}").exists(), "it to be gone")
