"""Work that goes on in a process of its own while the verb goes on too, until it must be done.

A process and no thread: what is put beside is a thousand system calls in Python, and a thread
would wait for the interpreter's lock at each.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
from typing import TYPE_CHECKING, Any, NoReturn

from coldsnap.artifact.errors import ColdSnapError
from coldsnap_runtime.timing import boottime

if TYPE_CHECKING:
    from collections.abc import Callable

    from coldsnap_runtime.timing import Timing

_MOST = 1 << 20
"""Bytes of its answer."""


class Beside:
    """Begins at once; `wait` until it is done, or `end` it. It changes files, not this process."""

    def __init__(self, name: str, work: Callable[[], None], timing: Timing) -> None:
        self._name, self._timing = name, timing
        self._parent = timing.current
        self._start = boottime()
        self._is_over = False
        self._reader, writer = os.pipe2(os.O_CLOEXEC)
        sys.stdout.flush()
        self._pid = os.fork()
        if self._pid == 0:
            _do(work, writer)
        os.close(writer)

    def wait(self) -> None:
        """Return when the work is done.

        Raises:
            ColdSnapError, OSError: what the work raised; ``restore.failed`` if its process died.
        """
        if self._is_over:
            return
        answer = _read(self._reader)
        self._reap()
        seconds = float(answer.get("seconds") or boottime() - self._start)
        self._timing.add(self._name, self._start, seconds, parent=self._parent)
        if "errno" in answer:
            raise OSError(answer["errno"], answer["text"], answer["path"])
        if "error" in answer:
            raise ColdSnapError.from_json(answer["error"])
        if "seconds" not in answer:
            raise ColdSnapError("restore.failed", f"the process of {self._name} was killed")

    def end(self) -> None:
        """Stop it where it is; nothing of it runs any more then. After `wait` nothing is to do."""
        if not self._is_over:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._pid, signal.SIGKILL)
            self._reap()

    def _reap(self) -> None:
        self._is_over = True
        os.close(self._reader)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self._pid, 0)


def _read(descriptor: int) -> dict[str, Any]:
    with open(descriptor, "rb", closefd=False) as file:
        data = file.read(_MOST)
    try:
        value = json.loads(data)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def _do(work: Callable[[], None], writer: int) -> NoReturn:
    """The other process, to its end."""
    answer: dict[str, Any] = {}
    begin = boottime()
    try:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.SIG_DFL)
        # A lock held here would outlive the verb.
        os.closerange(3, writer)
        os.closerange(writer + 1, 1 << 16)
        work()
    except ColdSnapError as error:
        answer["error"] = error.to_json()
    except OSError as error:
        answer |= {"errno": error.errno, "text": error.strerror, "path": error.filename}
    except BaseException as error:  # noqa: BLE001 - it is told where the verb can tell it
        told = ColdSnapError("runtime.internal", f"unexpected {type(error).__name__}: {error}")
        answer["error"] = told.to_json()
    finally:
        answer["seconds"] = boottime() - begin
        with contextlib.suppress(OSError):
            os.write(writer, json.dumps(answer).encode())
        os._exit(0)
