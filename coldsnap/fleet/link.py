"""The way to the child process: requests go out, answers come back, a dead child hangs nobody.

Many threads call; one reader thread per child hands each message to the call it belongs to. The
child is started when something is first asked of it. When it dies, everything that waits on it
gets an error at once, and what may safely be asked again is asked of a new child.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import queue
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import IO, Any, TypeAlias, cast

from coldsnap.artifact.errors import ColdSnapError
from coldsnap.fleet import early

JobSink: TypeAlias = Callable[[Mapping[str, Any]], None]

COMMAND = (sys.executable, "-P", "-m", "coldsnap.fleet.child")
CLOSE_SECONDS = 12.0
"""The child ends what still runs on the hosts first."""
_ids = itertools.count(1)


class ChildDiedError(Exception):
    """The child ended while a call waited; the text says what it last wrote to stderr."""


class Call:
    """One request under way."""

    def __init__(self, request: Mapping[str, Any]) -> None:
        self.identity = next(_ids)
        self.request = {"id": self.identity, **request}
        self._messages: queue.SimpleQueue[Mapping[str, Any] | None] = queue.SimpleQueue()
        self._reason = ""

    def deliver(self, message: Mapping[str, Any]) -> None:
        self._messages.put(message)

    def abandon(self, reason: str) -> None:
        self._reason = reason
        self._messages.put(None)

    def wait(self, seconds: float | None, on_job: JobSink | None = None) -> Any:
        """The answer's value; `on_job` gets the job events, in this thread.

        Raises:
            ColdSnapError: the answer's error.
            ChildDiedError: there will be no answer.
            queue.Empty: nothing at all came for `seconds`.
        """
        while True:
            message = self._messages.get(timeout=seconds)
            if message is None:
                raise ChildDiedError(self._reason)
            if "job" in message:
                if on_job is not None:
                    on_job(message["job"])
            elif message["ok"]:
                return message["value"]
            else:
                raise ColdSnapError.from_json(message["error"])


class Child:
    """One child process and the calls that wait on it."""

    def __init__(self, command: Sequence[str]) -> None:
        self._stderr: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115  # lives as long as we
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._stderr,
            env=_environment(),
            start_new_session=True,  # Ctrl-C is ours to handle, not the child's
        )
        self._stdin = cast("IO[bytes]", self._process.stdin)
        self._stdout = cast("IO[bytes]", self._process.stdout)
        self._calls: dict[int, Call] = {}
        self._lock = threading.Lock()
        self._writing = threading.Lock()
        self.is_dead = False
        threading.Thread(target=self._read, name="coldsnap-fleet", daemon=True).start()

    @property
    def pid(self) -> int:
        return self._process.pid

    def post(self, call: Call) -> None:
        """Send a request. If the child is dead, the call learns it from `Call.wait`."""
        with self._lock:
            if self.is_dead:
                call.abandon(self._last_words())
                return
            self._calls[call.identity] = call
        self.write(call.request)

    def write(self, message: Mapping[str, Any]) -> None:
        data = json.dumps(message, separators=(",", ":"), default=_plain).encode() + b"\n"
        try:
            with self._writing:
                self._stdin.write(data)
                self._stdin.flush()
        except (BrokenPipeError, ValueError):
            pass  # the reader sees the end of the child and tells everybody

    def close(self) -> None:
        """End it gently: it kills what it still runs on the hosts."""
        with self._writing, contextlib.suppress(BrokenPipeError):
            self._stdin.close()
        try:
            self._process.wait(CLOSE_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def _read(self) -> None:
        for line in self._stdout:
            self._route(line)
        self._process.wait()
        with self._lock:
            self.is_dead = True
            waiting = list(self._calls.values())
            self._calls.clear()
        words = self._last_words()
        for call in waiting:
            call.abandon(words)

    def _route(self, line: bytes) -> None:
        try:
            message = json.loads(line)
        except ValueError:
            return
        if "ready" in message:
            return
        with self._lock:
            call = self._calls.get(message["id"])
            if call is not None and "job" not in message:
                del self._calls[message["id"]]
        if call is not None:
            call.deliver(message)

    def _last_words(self) -> str:
        status = self._process.poll()
        self._stderr.seek(max(0, self._stderr.seek(0, os.SEEK_END) - 2000))
        lines = self._stderr.read().decode("utf-8", errors="replace").strip().splitlines()
        return f"it ended with status {status}" + (f": {lines[-1][:300]}" if lines else "")


class Link:
    """Calls to a child that is there when it is needed."""

    def __init__(self, command: Sequence[str] = COMMAND) -> None:
        self._hosts: list[Mapping[str, Any]] = []
        self._command = command
        self._child: Child | None = None
        self._lock = threading.Lock()
        self._closed = False

    @property
    def pid(self) -> int | None:
        """Process id of the living child."""
        child = self._child
        return None if child is None or child.is_dead else child.pid

    def describe(self, hosts: Sequence[Mapping[str, Any]]) -> None:
        """Tell the child, this one and later ones, of these hosts."""
        with self._lock:
            self._hosts = list(hosts)
            if self._child is not None:
                self._child.post(self._introduction())

    def _introduction(self) -> Call:
        return Call({"do": "hosts", "hosts": self._hosts})

    def start(self) -> Child:
        """The living child; started if there is none.

        Raises:
            ColdSnapError: ``fleet.closed``.
        """
        with self._lock:
            if self._closed:
                raise ColdSnapError("fleet.closed", "the fleet is closed")
            if self._child is None or self._child.is_dead:
                self._child = early.take(self._command) or Child(self._command)
                self._child.post(self._introduction())
            return self._child

    def post(self, request: Mapping[str, Any]) -> Call:
        """Send a request and go on; `Call.wait` takes the answer."""
        call = Call(request)
        self.start().post(call)
        return call

    def ask(self, request: Mapping[str, Any], seconds: float, on_job: JobSink | None = None) -> Any:
        """Send a request that may be sent twice, and wait for its answer.

        Raises:
            ColdSnapError: the answer's error, or ``fleet.child-died``.
        """
        return self.collect(self.post(request), seconds, on_job)

    def collect(self, call: Call, seconds: float, on_job: JobSink | None = None) -> Any:
        """Wait for a call that may be sent again if the child dies: once, to a new child."""
        where = str(call.request.get("host", ""))
        try:
            return self._wait(call, seconds, on_job)
        except ChildDiedError:
            again = {key: value for key, value in call.request.items() if key != "id"}
        try:
            return self._wait(self.post(again), seconds, on_job)
        except ChildDiedError as error:
            raise died(where, str(error)) from None

    def once(self, call: Call, seconds: float | None, on_job: JobSink | None = None) -> Any:
        """Wait for a call that must not be sent twice.

        Raises:
            ChildDiedError: the child died; whether the request was done is unknown.
            ColdSnapError: the answer's error.
        """
        return self._wait(call, seconds, on_job)

    def cancel(self, call: Call) -> None:
        """End that request and what it runs on its host; its answer is ``run.cancelled``."""
        child = self._child
        if child is not None and not child.is_dead:
            child.write({"do": "cancel", "ids": [call.identity]})

    def close(self) -> None:
        with self._lock:
            self._closed = True
            child, self._child = self._child, None
        if child is not None:
            child.close()

    def _wait(self, call: Call, seconds: float | None, on_job: JobSink | None) -> Any:
        try:
            return call.wait(seconds, on_job)
        except queue.Empty:
            self._give_up()
            raise ColdSnapError(
                "fleet.child-stuck",
                f"the fleet's child gave no answer within {seconds:g} s and was ended",
                where=str(call.request.get("host", "")),
                cause="a defect of coldsnap, or this machine is overloaded",
                changed=call.request["do"] in ("operation", "job-wait"),
            ) from None

    def _give_up(self) -> None:
        child = self._child
        if child is not None and not child.is_dead:
            child.kill()


def died(where: str, reason: str, *, changed: bool = False) -> ColdSnapError:
    """The child died, again or in the middle of something."""
    return ColdSnapError(
        "fleet.child-died",
        "the process that talks to the hosts died",
        where=where,
        cause=reason,
        remedy="check this machine's memory (dmesg), then: coldsnap plan resume",
        changed=changed,
    )


def _environment() -> dict[str, str]:
    """Our import path for the child, which takes it out again before it runs commands."""
    environment = dict(os.environ)
    environment["COLDSNAP_FLEET_PYTHONPATH"] = environment.get("PYTHONPATH", "")
    environment["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
    return environment


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, (tuple, set, frozenset)):
        return list(value)
    raise TypeError(f"{type(value).__name__} is not JSON")
