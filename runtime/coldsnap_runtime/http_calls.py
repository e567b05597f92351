"""Performing an engine's HTTP calls from inside its unit's network."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, Literal

from coldsnap.artifact.decode import Record
from coldsnap.artifact.errors import ColdSnapError
from coldsnap.artifact.rules import Between, Count, Text
from coldsnap_runtime.engine_door import EngineDoor, Watch
from coldsnap_runtime.engine_log import log_tail
from coldsnap_runtime.engine_spans import take_spans
from coldsnap_runtime.namespaces import dial
from coldsnap_runtime.unit_init import INSIDE_CONTROL

if TYPE_CHECKING:
    import http.client
    from collections.abc import Mapping, Sequence

    from coldsnap_runtime.context import Context
    from coldsnap_runtime.timing import Timing

MAX_ANSWER = 16 << 20
"""Bytes of one answer."""
_KEPT_ANSWER = 64 << 10
"""Bytes of an answer that a result keeps."""
_FIRST_PAUSE, _LAST_PAUSE = 0.02, 0.5
"""Seconds between two tries."""
_SAY_PERIOD = 10.0
"""Seconds between two log events while an engine is waited for."""
_BLOCK = 65536


@dataclass(frozen=True)
class HttpCall(Record):
    """`coldsnap.sdk.engine.HttpCall`, as it arrives."""

    method: Literal["GET", "POST", "PUT", "DELETE", "PATCH", "HEAD"]
    path: Annotated[str, Text(r"/[\x21-\x7e]*", 1, 4096, "a path that begins with /")]
    body: Any = None
    timeout: Annotated[float, Between(0.001, 86400.0)] = 60.0
    """Seconds for one try, from connecting to the last byte."""
    port: Annotated[str, Text(r"[A-Za-z0-9][A-Za-z0-9._-]*", 1, 128, "a port's name")] = "http"
    expect: dict[str, Any] = field(default_factory=dict)
    """Must be contained in the JSON answer; empty accepts any 2xx."""
    retry_seconds: Annotated[float, Between(0.0, 86400.0)] = 0.0


HttpCalls = Annotated[tuple[HttpCall, ...], Count(0, 64)]


class CallFailedError(Exception):
    """One try failed; the text says how. Never leaves the modules that make calls."""

    def __init__(self, message: str, remedy: str = "", code: str = "") -> None:
        super().__init__(message)
        self.remedy = remedy
        """What the engine advises."""
        self.code = code
        """What the engine calls it."""


def perform_all(
    door: EngineDoor, calls: Sequence[HttpCall], timing: Timing, context: Context
) -> list[Any]:
    """The calls in order; their answers, with long ones left out, their spans in `timing`.

    Raises:
        ColdSnapError: as `perform`; later calls are not made.
    """
    answers = []
    for call in calls:
        label = f"{call.method} {call.path}"
        context.phase(f"{door.where}: {label}")
        with timing.span(label, port=call.port):
            answers.append(_kept(take_spans(perform(door, call, context), timing)))
    return answers


def perform(door: EngineDoor, call: HttpCall, context: Context) -> Any:
    """One call with its retries; the JSON answer, or None if the answer is not JSON.

    Raises:
        ColdSnapError: ``engine.call-failed``, ``engine.not-ready`` (it never succeeded within
            its `retry_seconds`), ``engine.died``, ``engine.unknown-port``.
    """
    port = door.port(call.port)
    deadline = time.monotonic() + call.retry_seconds
    said = time.monotonic()
    pause = _FIRST_PAUSE
    with Watch(door.init) as watch:
        while True:
            context.check_cancelled()
            if watch.has_ended():
                raise door.died()
            try:
                return _try(door, call, port, watch)
            except CallFailedError as error:
                if time.monotonic() + pause >= deadline:
                    raise _given_up(door, call, error) from None
                if time.monotonic() - said > _SAY_PERIOD:
                    said = time.monotonic()
                    context.log(f"{door.where}: waiting for {call.method} {call.path}: {error}")
            if watch.has_ended(wait=pause):
                raise door.died()
            pause = min(pause * 1.5, _LAST_PAUSE)


def _try(door: EngineDoor, call: HttpCall, port: int, watch: Watch) -> Any:
    """One try. Raises CallFailedError, or ColdSnapError ``engine.died``."""
    status, data = exchange(door, call, port, watch)
    answer = _json(data)
    if not 200 <= status < 300:  # noqa: PLR2004  (the successful ones)
        told = (_told(answer, "remedy"), _told(answer, "code"))
        raise CallFailedError(f"HTTP {status}: {_shown(data)}", *told)
    if difference := missing_from(call.expect, answer):
        raise CallFailedError(f"the answer lacks {difference}: {_shown(data)}")
    return answer


def exchange(door: EngineDoor, call: HttpCall, port: int, watch: Watch) -> tuple[int, bytes]:
    """(status, body) of one request, within the call's time-out.

    Raises:
        ColdSnapError: ``engine.died``; CallFailedError for everything else.
    """
    import http.client  # noqa: PLC0415  (it costs as much as all else here)

    deadline = time.monotonic() + call.timeout
    try:
        connection = open_connection(door, port, call.timeout)
        try:
            send(connection, door, call)
            wait_for_data(connection, door, watch, deadline)
            answer = connection.getresponse()
            return answer.status, _read(answer, deadline)
        finally:
            connection.close()
    except (OSError, http.client.HTTPException) as error:
        # Its sockets close when it dies: look whether that was it.
        if watch.has_ended(wait=0.05):
            raise door.died() from None
        raise CallFailedError(_reason(error, call)) from None


def open_connection(door: EngineDoor, port: int, timeout: float) -> http.client.HTTPConnection:
    """A connection made inside the unit's network. Raises OSError."""
    import http.client  # noqa: PLC0415

    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout)
    connection.sock = dial(door.init.pid, port, timeout)
    return connection


def send(connection: http.client.HTTPConnection, door: EngineDoor, call: HttpCall) -> None:
    headers = {"Accept": "application/json", "Connection": "close"}
    body = None
    if call.body is not None:
        body = json.dumps(filled(call.body, door.places)).encode()
        headers["Content-Type"] = "application/json"
    connection.request(call.method, filled(call.path, door.places), body, headers)


def wait_for_data(
    connection: http.client.HTTPConnection, door: EngineDoor, watch: Watch, deadline: float
) -> None:
    """Until the answer begins.

    Raises:
        TimeoutError: `deadline` (monotonic) passed.
        ColdSnapError: ``engine.died``.
    """
    happened = set(watch.readable(connection.sock, deadline - time.monotonic()))
    if not happened:
        raise TimeoutError
    if "data" not in happened:
        raise door.died()
    connection.sock.settimeout(max(0.001, deadline - time.monotonic()))


def filled(value: Any, places: Mapping[str, str]) -> Any:
    """`value` with ``{dir}`` and the like put into its texts; other braces stay as they are."""
    if isinstance(value, str):
        for name, place in places.items():
            value = value.replace("{" + name + "}", place)
        return value
    if isinstance(value, dict):
        return {key: filled(item, places) for key, item in value.items()}
    if isinstance(value, list):
        return [filled(item, places) for item in value]
    return value


def missing_from(expect: Any, answer: Any, place: str = "") -> str:
    """Where `answer` does not contain `expect`; empty if it does."""
    if isinstance(expect, dict):
        if not isinstance(answer, dict):
            return f"an object at {place or '/'}" if expect else ""
        for key, wanted in expect.items():
            if key not in answer:
                return f"{place}/{key}"
            if found := missing_from(wanted, answer[key], f"{place}/{key}"):
                return found
        return ""
    return "" if expect == answer else f"{json.dumps(expect)} at {place or '/'}"


def _read(answer: http.client.HTTPResponse, deadline: float) -> bytes:
    blocks: list[bytes] = []
    size = 0
    while block := answer.read1(_BLOCK):
        size += len(block)
        if size > MAX_ANSWER:
            raise CallFailedError(f"the answer is longer than {MAX_ANSWER >> 20} MiB")
        if time.monotonic() > deadline:  # one that drips must end too
            raise TimeoutError
        blocks.append(block)
    return b"".join(blocks)


def _json(data: bytes) -> Any:
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        return None


def _kept(answer: Any) -> Any:
    size = len(json.dumps(answer))
    return answer if size <= _KEPT_ANSWER else {"left_out": f"{size} bytes"}


def _shown(data: bytes) -> str:
    """What an engine says, in one short line; of an error object its message."""
    data = _told(_json(data), "message").encode("utf-8", "replace") or data
    text = data[:2000].decode("utf-8", "replace")
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())[:300]


def _told(answer: Any, name: str) -> str:
    """Text `name` of an error object ``{"error": {...}}``; empty without one."""
    error = answer.get("error") if isinstance(answer, dict) else None
    value = error.get(name) if isinstance(error, dict) else None
    return value[:300] if isinstance(value, str) else ""


def _reason(error: Exception, call: HttpCall) -> str:
    if isinstance(error, TimeoutError):
        return f"no answer within {call.timeout:g} s"
    if isinstance(error, ConnectionRefusedError):
        return "nothing listens on its port yet"
    return f"{type(error).__name__}: {error}"


def _given_up(door: EngineDoor, call: HttpCall, error: CallFailedError) -> ColdSnapError:
    label = f"{call.method} {call.path}"
    details = (*([f"the engine says {error.code}"] if error.code else ()), *log_tail(door.log))
    if INSIDE_CONTROL in str(error):
        details = (*details, f"{INSIDE_CONTROL} is {door.log.parent} on the host")
    if not call.retry_seconds:
        return ColdSnapError(
            "engine.call-failed",
            f"{label} failed: {error}",
            door.where,
            details=details,
            remedy=error.remedy or "read the engine's log",
        )
    return ColdSnapError(
        "engine.not-ready",
        f"{label} did not succeed within {call.retry_seconds:g} s: {error}",
        door.where,
        details=details,
        remedy=error.remedy or "read the engine's log; give it more time if it only is slow",
    )
