"""System calls that a unit needs, tried in children: what they change ends with them."""

from __future__ import annotations

import ctypes
import errno
import functools
import os
import signal
from typing import TYPE_CHECKING

from coldsnap_runtime.probe.feature import FAILED, Options, lacking, passed

if TYPE_CHECKING:
    from collections.abc import Callable

    from coldsnap_runtime.probe.feature import Feature

NAMESPACES = {
    "mount": 0x00020000,
    "uts": 0x04000000,
    "ipc": 0x08000000,
    "pid": 0x20000000,
    "net": 0x40000000,
}
_IO_URING_SETUP, _CLONE3 = 425, 435
_WANTED_PID = 77


def probe_namespaces(options: Options) -> Feature:
    del options
    refused = {
        name: _in_child(functools.partial(_unshare, flag)) for name, flag in NAMESPACES.items()
    }
    missing = {name: reason for name, reason in refused.items() if reason}
    if not missing:
        return passed(kinds=sorted(NAMESPACES))
    reason = missing[min(missing)]
    return lacking(
        FAILED,
        f"no {', '.join(sorted(missing))} namespace can be made: {reason}",
        "run as root with CAP_SYS_ADMIN; in a container add it and lift its seccomp profile",
        refused=missing,
    )


def probe_seccomp(options: Options) -> Feature:
    """Install the filter that keeps io_uring away, and see that it does."""
    del options
    reason = _in_child(_deny_io_uring)
    if not reason:
        return passed()
    return lacking(
        FAILED, f"no seccomp filter: {reason}", "use a kernel with CONFIG_SECCOMP_FILTER"
    )


def probe_pid_choice(options: Options) -> Feature:
    """CRIU gives processes their old numbers: clone3 with set_tid."""
    del options
    reason = _in_child(_choose_pid)
    evidence = {"ns_last_pid_writable": os.access("/proc/sys/kernel/ns_last_pid", os.W_OK)}
    if not reason:
        return passed(method="clone3 set_tid", **evidence)
    return lacking(
        FAILED,
        f"process numbers cannot be chosen: {reason}",
        "run as root; in a container: --security-opt seccomp=unconfined",
        **evidence,
    )


def _in_child(work: Callable[[], str]) -> str:
    """Why `work` failed, empty if it did not; what it does to its process is gone afterwards."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            reason = work()
        except BaseException as error:  # noqa: BLE001  (the child must end here)
            reason = f"{type(error).__name__}: {error}"
        os.write(writer, reason.encode()[:4096])
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as file:
        answer = file.read().decode()
    status = os.waitpid(child, 0)[1]
    return answer or (f"killed by signal {status & 127}" if status & 127 else "")


def _unshare(flag: int) -> str:
    libc = ctypes.CDLL(None, use_errno=True)
    return "" if libc.unshare(flag) == 0 else os.strerror(ctypes.get_errno())


class _Filter(ctypes.Structure):
    _fields_ = [
        ("code", ctypes.c_uint16),
        ("jt", ctypes.c_uint8),
        ("jf", ctypes.c_uint8),
        ("k", ctypes.c_uint32),
    ]


class _Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_uint16), ("filter", ctypes.POINTER(_Filter))]


def _deny_io_uring() -> str:
    libc = ctypes.CDLL(None, use_errno=True)
    steps = (_Filter * 4)(
        _Filter(0x20, 0, 0, 0),  # load the system call's number
        _Filter(0x15, 0, 1, _IO_URING_SETUP),  # is it io_uring_setup?
        _Filter(0x06, 0, 0, 0x00050000 | errno.ENOSYS),  # then: no such system call
        _Filter(0x06, 0, 0, 0x7FFF0000),  # else: allow
    )
    program = _Program(4, steps)
    if libc.prctl(38, 1, 0, 0, 0) != 0:  # PR_SET_NO_NEW_PRIVS
        return os.strerror(ctypes.get_errno())
    if libc.prctl(22, 2, ctypes.byref(program), 0, 0) != 0:  # PR_SET_SECCOMP, filter
        return os.strerror(ctypes.get_errno())
    libc.syscall(_IO_URING_SETUP, 1, 0)
    got = ctypes.get_errno()
    return "" if got == errno.ENOSYS else f"a filtered call gave {os.strerror(got)}"


def _choose_pid() -> str:
    """In a PID namespace of our own, ask for a child with a certain number."""
    if reason := _unshare(NAMESPACES["pid"]):
        return reason
    return _in_child(_clone_with_pid)


def _clone_with_pid() -> str:
    libc = ctypes.CDLL(None, use_errno=True)
    wanted = (ctypes.c_int32 * 1)(_WANTED_PID)
    fields = [0] * 11
    fields[4] = signal.SIGCHLD
    fields[8], fields[9] = ctypes.addressof(wanted), 1  # set_tid, set_tid_size
    arguments = (ctypes.c_uint64 * 11)(*fields)
    child = libc.syscall(_CLONE3, ctypes.byref(arguments), ctypes.sizeof(arguments))
    if child == 0:
        os._exit(0)
    if child < 0:
        return os.strerror(ctypes.get_errno())
    os.waitpid(child, 0)
    return "" if child == _WANTED_PID else f"asked for {_WANTED_PID}, got {child}"
