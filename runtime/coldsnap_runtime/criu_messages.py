"""The few messages of CRIU's RPC that we exchange, in protobuf's wire format.

Written by hand because the generated classes need a protobuf library, whose pure-Python form
takes longer to import than CRIU takes to restore a small tree. Field numbers are those of the
RPC, which never change; the tests compare with the generated classes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

DUMP: Final = 1
RESTORE: Final = 2
NOTIFY: Final = 6
"""Types of requests and answers."""
_CGROUPS_IGNORED: Final = 0
_NETWORK_LOCK_SKIPPED: Final = 3

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_MOST_BITS = 70


@dataclass(frozen=True)
class Options:
    """``criu_opts`` of a dump or restore; what is not named has CRIU's default."""

    images_dir: str
    log_file: str
    log_level: int
    ghost_limit: int
    pid: int = 0
    """Root of a dump."""
    leave_running: bool = False
    inherit: Sequence[tuple[str, int]] = ()
    """(key, descriptor)"""

    def encoded(self) -> bytes:
        parts = [_number(1, -1)]  # images_dir_fd: required, and overruled by images_dir
        if self.pid:
            parts.append(_number(2, self.pid))
        if self.leave_running:
            parts.append(_number(3, 1))
        # ext_unix_sk, tcp_established, file_locks
        parts += [_number(field, 1) for field in (4, 5, 8)]
        parts += [_number(9, self.log_level), _text(10, self.log_file)]
        parts += [_number(field, 1) for field in (12, 18)]  # notify_scripts, link_remap
        for key, descriptor in self.inherit:
            parts.append(_nested(27, _text(1, key) + _number(2, descriptor)))
        parts += [_number(34, _CGROUPS_IGNORED), _number(35, self.ghost_limit)]
        # Nothing outside holds an end of a connection (that was checked), and iptables may be
        # missing.
        parts.append(_number(64, _NETWORK_LOCK_SKIPPED))
        parts.append(_text(68, self.images_dir))
        return b"".join(parts)


@dataclass(frozen=True)
class Answer:
    """``criu_resp``."""

    kind: int
    success: bool
    script: str = ""
    """Phase that a notification tells of."""
    message: str = ""
    """CRIU's own word of what failed."""


def request(kind: int, options: Options) -> bytes:
    """A ``criu_req`` that asks for work."""
    return _number(1, kind) + _nested(2, options.encoded())


def leave(*, is_granted: bool) -> bytes:
    """The ``criu_req`` that answers a notification."""
    return _number(1, NOTIFY) + _number(3, int(is_granted))


def read_answer(data: bytes) -> Answer:
    """Raises ValueError for what is not such a message."""
    kind, success, script, message = -1, False, "", ""
    for field, value in _fields(data):
        if field == 1 and isinstance(value, int):
            kind = value
        elif field == 2 and isinstance(value, int):  # noqa: PLR2004  (field numbers)
            success = bool(value)
        elif field == 5 and isinstance(value, bytes):  # noqa: PLR2004
            script = _script(value)
        elif field == 9 and isinstance(value, bytes):  # noqa: PLR2004
            message = value.decode("utf-8", "replace")
    if kind < 0:
        raise ValueError("an answer without a type")
    return Answer(kind, success, script, message)


def _script(data: bytes) -> str:
    for field, value in _fields(data):
        if field == 1 and isinstance(value, bytes):
            return value.decode("utf-8", "replace")
    return ""


def _fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """(field number, value); values of a fixed size as bytes."""
    at = 0
    while at < len(data):
        key, at = _read_varint(data, at)
        field, wire = key >> 3, key & 7
        if wire == _VARINT:
            number, at = _read_varint(data, at)
            yield field, number
            continue
        if wire == _BYTES:
            size, at = _read_varint(data, at)
        elif wire in (_FIXED64, _FIXED32):
            size = 8 if wire == _FIXED64 else 4
        else:
            raise ValueError(f"wire type {wire}")
        if at + size > len(data):
            raise ValueError("the message ends early")
        yield field, data[at : at + size]
        at += size


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, _MOST_BITS, 7):
        if at >= len(data):
            raise ValueError("the message ends early")
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:  # noqa: PLR2004  (the bit that says: one more)
            return value, at
    raise ValueError("a number that does not end")


def _varint(value: int) -> bytes:
    value &= (1 << 64) - 1  # negative numbers have ten bytes
    out = bytearray()
    while value > 0x7F:  # noqa: PLR2004
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _number(field: int, value: int) -> bytes:
    return _varint(field << 3 | _VARINT) + _varint(value)


def _nested(field: int, data: bytes) -> bytes:
    return _varint(field << 3 | _BYTES) + _varint(len(data)) + data


def _text(field: int, value: str) -> bytes:
    return _nested(field, value.encode())
