"""Being inside a unit for a moment: sockets in its network, files in its mounts."""

from __future__ import annotations

import ctypes
import os
import socket
import threading
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

_CLONE_NEWNET = 0x40000000
_LIBC = ctypes.CDLL(None, use_errno=True)

T = TypeVar("T")


def dial(init_pid: int, port: int, timeout: float, host: str = "127.0.0.1") -> socket.socket:
    """A TCP connection made inside the network namespace of process `init_pid`.

    Raises:
        OSError: as the system says; ProcessLookupError if the unit is gone.
    """

    def connect() -> socket.socket:
        return socket.create_connection((host, port), timeout)

    return in_network(init_pid, connect)


def in_network(init_pid: int, work: Callable[[], T]) -> T:
    """Run `work` on a thread that is inside the unit's network namespace.

    setns changes the calling thread only, so it is done on a thread of its own that ends after.

    Raises:
        OSError: setns failed, or what `work` raised.
    """
    results: list[T] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            _enter_network(init_pid)
            results.append(work())
        except BaseException as error:  # noqa: BLE001  (handed to the caller below)
            errors.append(error)

    thread = threading.Thread(target=run, name="in-unit-network", daemon=True)
    thread.start()
    thread.join()
    if errors:
        raise errors[0]
    return results[0]


def root_of(init_pid: int) -> Path:
    """The unit's file system as seen from the host."""
    return Path(f"/proc/{init_pid}/root")


def _enter_network(init_pid: int) -> None:
    try:
        descriptor = os.open(f"/proc/{init_pid}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        raise ProcessLookupError(f"process {init_pid} is gone") from None
    try:
        if _LIBC.setns(descriptor, _CLONE_NEWNET) != 0:
            number = ctypes.get_errno()
            raise OSError(number, f"setns: {os.strerror(number)}")
    finally:
        os.close(descriptor)
