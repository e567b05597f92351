"""Connections between tensor-parallel ranks: a star around rank 0, plain TCP.

A link carries commands (a length, then JSON) and, where both ends know the shape, raw float32.
"""

from __future__ import annotations

import json
import socket
import struct
import time
from typing import Any

import numpy as np

from coldsnap.artifact.errors import ColdSnapError
from coldsnap_reference_engine.kernels import Floats

_LENGTH = struct.Struct("<I")
_MAX_COMMAND = 1 << 20
_RETRY_SECONDS = 0.05
_HELLO_SECONDS = 10.0


class Link:
    """One end of a connection; everything raises OSError when the other end is gone."""

    def __init__(self, connection: socket.socket) -> None:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._connection = connection

    def send(self, command: dict[str, Any]) -> None:
        data = json.dumps(command).encode()
        self._connection.sendall(_LENGTH.pack(len(data)) + data)

    def receive(self) -> dict[str, Any]:
        (length,) = _LENGTH.unpack(self._exactly(_LENGTH.size))
        if length > _MAX_COMMAND:
            raise ConnectionError(f"a command of {length} bytes")
        try:
            value = json.loads(self._exactly(length))
        except ValueError as error:
            raise ConnectionError("a command that is not JSON") from error
        if not isinstance(value, dict):
            raise ConnectionError("a command that is not an object")
        return value

    def send_array(self, values: Floats) -> None:
        self._connection.sendall(np.ascontiguousarray(values).data.cast("B"))

    def receive_array(self, shape: tuple[int, ...]) -> Floats:
        values = np.empty(shape, np.float32)
        self._fill(values.data.cast("B"))
        return values

    def wait(self, seconds: float | None) -> None:
        """Longest time that a later call may take; None for no limit."""
        self._connection.settimeout(seconds)

    def close(self) -> None:
        self._connection.close()

    def _exactly(self, count: int) -> bytes:
        data = bytearray(count)
        self._fill(memoryview(data))
        return bytes(data)

    def _fill(self, view: memoryview) -> None:
        at = 0
        while at < len(view):
            count = self._connection.recv_into(view[at:])
            if not count:
                raise ConnectionError("the other rank closed its connection")
            at += count


def listen(host: str, port: int) -> socket.socket:
    """Raises OSError when the port is taken."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return socket.create_server((host, port), family=family, backlog=64)


def accept(listener: socket.socket, identity: dict[str, Any], seconds: float) -> list[Link]:
    """Links to ranks 1, 2, ..., in order, once all have come with the same identity.

    Raises:
        ColdSnapError: ``ranks.absent`` naming who did not come.
    """
    deadline = time.monotonic() + seconds
    found: dict[int, Link] = {}
    wanted = set(range(1, int(identity["size"])))
    while missing := wanted - found.keys():
        listener.settimeout(max(0.01, deadline - time.monotonic()))
        try:
            link = Link(listener.accept()[0])
        except TimeoutError:
            for link in found.values():
                link.close()
            names = ", ".join(str(rank) for rank in sorted(missing))
            message = f"rank {names} did not come within {seconds:g} s"
            raise ColdSnapError("ranks.absent", message) from None
        rank = _greet(link, identity)
        if rank in missing:
            found[rank] = link
        else:
            link.close()
    return [found[rank] for rank in sorted(found)]


def connect(address: tuple[str, int], rank: int, identity: dict[str, Any], seconds: float) -> Link:
    """A link to rank 0.

    Raises:
        ColdSnapError: ``ranks.absent`` when it does not answer, ``ranks.differ`` when it refuses.
    """
    deadline = time.monotonic() + seconds
    while True:
        try:
            link = Link(socket.create_connection(address, timeout=_HELLO_SECONDS))
            link.send({**identity, "rank": rank})
            answer = link.receive()
        except OSError as error:
            if time.monotonic() > deadline:
                message = f"rank 0 does not answer at {address[0]}:{address[1]}: {error}"
                raise ColdSnapError("ranks.absent", message) from error
            time.sleep(_RETRY_SECONDS)
            continue
        if not answer.get("ok"):
            link.close()
            message = f"rank 0 refuses rank {rank}: it serves something else"
            raise ColdSnapError("ranks.differ", message, details=(str(answer), str(identity)))
        link.wait(None)
        return link


def _greet(link: Link, identity: dict[str, Any]) -> int:
    """The rank at the other end, or 0 if it is none of ours."""
    link.wait(_HELLO_SECONDS)
    try:
        hello = link.receive()
        rank = hello.pop("rank", 0)
        is_ours = hello == identity and isinstance(rank, int)
        link.send({"ok": is_ours, **identity})
        link.wait(None)
    except OSError:
        return 0
    return rank if is_ours else 0
