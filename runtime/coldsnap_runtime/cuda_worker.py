"""A process of its own that makes the driver's calls: they may hang, or crash their caller.

The verb waits with a deadline; what hangs is left alone (ending a call half-way desynchronises
the driver from its target) and its worker is not used again.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import sys
import time
from dataclasses import dataclass
from typing import Any, NoReturn

from coldsnap_runtime.cuda_library import CudaCallError, CudaLibrary

_MAX_ANSWER = 1 << 16
_LONGEST = 900
"""Seconds that a worker may live; no dump or restore takes as long."""
_END_SECONDS = 1.0


class CudaGoneError(Exception):
    """The worker died: the library crashed, or there is none."""


class CudaHungError(Exception):
    """No answer in time."""


@dataclass(frozen=True)
class Outcome:
    """How one call went."""

    value: Any = None
    seconds: float = 0.0
    error: CudaCallError | CudaGoneError | CudaHungError | None = None


class CudaWorker:
    """Starts at once and beside its maker: cuInit takes a moment."""

    def __init__(self) -> None:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        sys.stdout.flush()
        self._pid = os.fork()
        if self._pid == 0:
            _serve(theirs)
        theirs.close()
        self._asked = ""
        self.is_usable = True
        """False once a call hung or the library crashed."""

    def begin(self, call: str, pid: int, *arguments: Any) -> None:
        """Ask for a call; `finish` has its outcome. See `CudaLibrary` for the calls."""
        self._asked = f"{call} of process {pid}"
        with contextlib.suppress(OSError):  # a dead worker shows in `finish`
            self._socket.send(json.dumps([call, pid, *arguments]).encode())

    def finish(self, seconds: float) -> Outcome:
        """The outcome of what was begun, after `seconds` at the latest."""
        if not select.select([self._socket], [], [], max(0.0, seconds))[0]:
            self.is_usable = False
            return Outcome(error=CudaHungError(f"{self._asked}: no answer in time"))
        try:
            data = self._socket.recv(_MAX_ANSWER)
        except OSError:
            data = b""
        if not data:
            self.is_usable = False
            return Outcome(error=CudaGoneError(f"{self._asked}: the driver library crashed"))
        answer = json.loads(data)
        if "unusable" in answer:
            return Outcome(error=CudaGoneError(answer["unusable"]))
        error = CudaCallError(answer["call"], answer["code"]) if "code" in answer else None
        return Outcome(answer.get("value"), answer["seconds"], error)

    def close(self) -> None:
        """Let it end; one that hangs in the driver is left to it."""
        self._socket.close()
        deadline = time.monotonic() + _END_SECONDS
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(self._pid, os.WNOHANG)[0] == 0 and time.monotonic() < deadline:
                if not self.is_usable:
                    return
                time.sleep(0.002)


def _serve(channel: socket.socket) -> NoReturn:
    """The worker: calls from the channel until it closes."""
    status = 1
    try:
        _settle(channel.fileno())
        library, trouble = _load()
        while data := channel.recv(_MAX_ANSWER):
            call, *arguments = json.loads(data)
            answer = {"unusable": trouble} if library is None else _do(library, call, arguments)
            channel.send(json.dumps(answer).encode())
        status = 0
    finally:
        os._exit(status)


def _settle(channel: int) -> None:
    """Leave the verb behind: its signals (a call must not be left half-done), files and locks."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    # One that hangs in the driver is left to it, but not for ever.
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(_LONGEST)
    os.setsid()
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(null, descriptor)
    os.closerange(3, channel)
    os.closerange(channel + 1, 1 << 16)


def _load() -> tuple[CudaLibrary | None, str]:
    try:
        return CudaLibrary(), ""
    except (OSError, CudaCallError, AttributeError) as error:
        return None, f"the CUDA driver library cannot be used: {error}"


def _do(library: CudaLibrary, call: str, arguments: list[Any]) -> dict[str, Any]:
    begin = time.monotonic()
    answer: dict[str, Any] = {}
    try:
        answer["value"] = getattr(library, call)(*arguments)
    except CudaCallError as error:
        answer |= {"call": error.call, "code": error.code}
    return {**answer, "seconds": round(time.monotonic() - begin, 6)}
