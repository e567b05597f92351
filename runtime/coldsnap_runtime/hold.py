"""The watchdog of a quiesced unit: it serves again by itself when nobody comes back for it.

A small process in a session of its own, born before the engine is quiesced, so that neither the
death of the controller nor of the verb leaves the engine paused. What it is told stands in
``hold.json``; whoever resumes the unit removes that file, and a watchdog that does not find its
own token there ends. While another verb works on the unit (a dump that takes long), it waits.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from typing import TYPE_CHECKING, Any, NoReturn

from coldsnap.artifact.decode import encode
from coldsnap.artifact.errors import ColdSnapError
from coldsnap_runtime import lease, unit_expose
from coldsnap_runtime.context import Context
from coldsnap_runtime.engine_door import door_of, drop_export
from coldsnap_runtime.generation_notes import HOLD, read_note, remove_note, write_note
from coldsnap_runtime.http_calls import HttpCall, perform_all
from coldsnap_runtime.timing import Timing, boottime
from coldsnap_runtime.unit_record import UnitStore

if TYPE_CHECKING:
    from collections.abc import Sequence

    from coldsnap_runtime.unit_record import GenerationPaths, UnitRecord

_LOOK_SECONDS = 1.0
"""Between two looks at the clock: sleeping longer would not count a suspended host."""
_RETRY_SECONDS = 5.0
"""Between two tries to resume an engine that refuses."""
_TRIES = 120


def begin(
    context: Context, record: UnitRecord, seconds: float, undo: Sequence[HttpCall]
) -> dict[str, Any]:
    """Start the watchdog; returns the note that `finish` completes."""
    paths = UnitStore(context.state_dir).paths(record.unit, record.generation)
    note = {
        "token": os.urandom(8).hex(),
        "expires_boottime": boottime() + seconds,
        "undo": encode(tuple(undo)),
        "complete": False,
    }
    write_note(paths, HOLD, note)
    _fork(context, record, note, undo)
    return note


def complete(paths: GenerationPaths, note: dict[str, Any]) -> None:
    """The engine holds still: only now may it be dumped."""
    write_note(paths, HOLD, {**note, "complete": True})


def is_complete(paths: GenerationPaths) -> bool:
    """Whether the engine was quiesced to the end, and nobody resumed it since."""
    return read_note(paths, HOLD).get("complete") is True


def end(paths: GenerationPaths) -> None:
    """Dismiss the watchdog."""
    remove_note(paths, HOLD)


def _fork(
    context: Context, record: UnitRecord, note: dict[str, Any], undo: Sequence[HttpCall]
) -> None:
    sys.stdout.flush()
    middle = os.fork()
    if middle:
        os.waitpid(middle, 0)
        return
    # Twice, so that init adopts it, and in its own session: a job's end takes its session along.
    try:
        os.setsid()
        if os.fork() == 0:
            _watch(context.state_dir, record, note, undo)
    finally:
        os._exit(0)


def _watch(
    state_dir: str, record: UnitRecord, note: dict[str, Any], undo: Sequence[HttpCall]
) -> NoReturn:
    try:
        store = UnitStore(state_dir)
        paths = store.paths(record.unit, record.generation)
        _settle(paths)
        tries = 0
        while _is_wanted(store, paths, record, note):
            left = note["expires_boottime"] - boottime()
            if left > 0:
                time.sleep(min(left, _LOOK_SECONDS))
            elif tries < _TRIES and not _resume(store, record, note, undo, state_dir):
                tries += 1
                time.sleep(_RETRY_SECONDS)
            else:
                break
    except BaseException:  # noqa: BLE001  (its last word goes to its log)
        import traceback  # noqa: PLC0415  (start-up time)

        traceback.print_exc()
    finally:
        with contextlib.suppress(OSError, ValueError):
            sys.stderr.flush()
        os._exit(0)


def _settle(paths: GenerationPaths) -> None:
    """Leave the verb behind: its signals, its files, its locks."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    os.chdir("/")
    log = os.open(paths.folder / "hold.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    null = os.open(os.devnull, os.O_RDONLY)
    for descriptor, target in ((null, 0), (log, 1), (log, 2)):
        os.dup2(descriptor, target)
    os.closerange(3, 1 << 16)


def _is_wanted(
    store: UnitStore, paths: GenerationPaths, record: UnitRecord, note: dict[str, Any]
) -> bool:
    if read_note(paths, HOLD).get("token") != note["token"]:
        return False
    current = store.find(record.unit, record.generation)
    return current is not None and current.is_live


def _resume(
    store: UnitStore,
    record: UnitRecord,
    note: dict[str, Any],
    undo: Sequence[HttpCall],
    state_dir: str,
) -> bool:
    """Serve again, unless a verb is at work; False if that must be tried again."""
    paths = store.paths(record.unit, record.generation)
    with lease.exclusive(state_dir, record.unit) as is_mine:
        if not is_mine:
            return False
        if not _is_wanted(store, paths, record, note):
            return True
        context = Context(state_dir, "", _say)
        try:
            perform_all(door_of(store, record), undo, Timing(record.unit), context)
        except ColdSnapError as error:
            _say({"failed": str(error), "details": list(error.details)})
            return False
        unit_expose.go_on(record)
        drop_export(paths)
        store.update(record, state="serving", since=time.time())
        end(paths)
        _say({"resumed": record.unit, "reason": "nobody resumed it in time"})
        return True


def _say(event: dict[str, Any]) -> None:
    print(f"{time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime())} {event}", flush=True)
