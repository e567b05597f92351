"""From CRIU's log to an error that says what, why and what to do."""

from __future__ import annotations

import re
from pathlib import Path

from coldsnap.artifact.errors import ColdSnapError

_HARMLESS = re.compile(
    r"Can't setup RLIMIT_NOFILE|Can't get 1:(16|34) opt|Unable to open .*tun|kdat cache"
    r"|Can't load kerndat|ip_tables|nf_tables"
)
_MAX_LOG = 64 << 20
_TAIL = 4 << 20

_CAUSES: tuple[tuple[str, str, str], ...] = (
    (
        r"closed in-flight socket",
        "a client of a unix socket left before the engine accepted it",
        "let the engine accept what waits, then capture again",
    ),
    (
        r"io_uring",
        "a process holds an io_uring, which CRIU cannot save",
        "start the unit with launch.io_uring: deny (the default)",
    ),
    (
        r"Connected TCP socket|tcp.*(half|connected)",
        "a client is connected to the engine",
        "drain it (core.quiesce), then capture again",
    ),
    (
        r"half of stream unix connection|external.*unix|unix.*external",
        "a unix socket leads to a process outside the unit",
        "start the peer inside the unit, or close the connection before the capture",
    ),
    (
        r"No space left on device|Disk quota",
        "the disk is full",
        "free space below the state folder",
    ),
    (
        r"[Gg]host file .*(bigger|limit|big)|ghost_limit",
        "a deleted file that is still open is too big",
        "let the engine close it, or keep it in a folder named in launch.caches",
    ),
    (
        r"suspending seccomp failed|suspend seccomp",
        "CRIU may not suspend seccomp filters here",
        "run as root of the initial user namespace (CAP_SYS_ADMIN)",
    ),
    (
        r"Can't fork for|Pid \d+ do not match|set_tid",
        "the number of a captured process is taken inside the unit",
        "restore again; if it stays, report it with the log",
    ),
    (
        r"Can't bind|Address already in use|Cannot assign requested address",
        "an address that the engine listens on is taken or missing here",
        "use network: private, or free the address",
    ),
    (
        r"bad size|Can't open file|Can't open vma|build-ID|No such file or directory",
        "a file that the processes have open is missing or differs here",
        "put the captured file back, or capture again",
    ),
    (
        r"empty-image|Unexpected EOF|Can't read|magic|Unable to open.*\.img",
        "the image is incomplete or damaged",
        "verify the artifact, then restore another one",
    ),
    (r"vDSO|vdso", "this CRIU is too old for the kernel", "use CRIU 4.2 or newer"),
    (
        r"xfeatures|cpu.*(mismatch|not supported)|ins_cap|FPU",
        "this CPU lacks features of the CPU that was captured on",
        "restore on a host with the same CPU model, or capture here",
    ),
    (
        r"SysV|shmid|IPC ns",
        "System V shared memory cannot be saved",
        "switch it off in the engine (for UCX: UCX_TLS without sysv)",
    ),
    (
        r"Can't dump file .*chr|doesn't have a plugin|No plugin",
        "a device that CRIU has no plug-in for is open",
        "close it before the capture, or use a driver that handles it",
    ),
    (
        r"Can't lookup mount",
        "a file is open that is in no mount of the unit",
        "report it with the log",
    ),
)


def failure(
    operation: str,
    log: Path,
    answer: str = "",
    *,
    timeout: float | None = None,
    has_died: bool = False,
) -> ColdSnapError:
    """The error for a CRIU that failed, died or did not end in time."""
    if timeout is not None:
        return ColdSnapError(
            "criu.timeout",
            f"CRIU did not finish the {operation} within {timeout:g} s and was killed",
            details=_details(first_error(log), log),
            cause="truncated images make CRIU try for ever; a stuck process or disk does too",
            remedy="verify the artifact: coldsnap artifact verify; then try again",
        )
    line = first_error(log) or answer.strip().splitlines()[0:1]
    text = line if isinstance(line, str) else "".join(line)
    cause, remedy = explain(log, text)
    if has_died:
        cause = cause or "CRIU was killed, or its process died"
    return ColdSnapError(
        f"criu.{operation}-failed",
        f"CRIU could not {operation} the processes",
        details=_details(text, log),
        cause=cause,
        remedy=remedy or f"read {log}",
    )


def first_error(log: Path) -> str:
    """The first line of the log that tells a real error; empty if there is none."""
    for line in _lines(log):
        if "Error (" in line and not _HARMLESS.search(line):
            return line.strip()
    return ""


def explain(log: Path, line: str) -> tuple[str, str]:
    """(cause, remedy) by the first error, else by any error of the log; empty if unknown."""
    errors = [text for text in _lines(log) if "Error (" in text and not _HARMLESS.search(text)]
    for text in (line, *errors):
        for pattern, cause, remedy in _CAUSES:
            if re.search(pattern, text):
                return f"{cause}{_whose(log)}", remedy
    return "", ""


def _whose(log: Path) -> str:
    """Which process CRIU was busy with, by its number inside the unit."""
    for line in _lines(log):
        found = re.search(r"Dump \w+ \(pid: (\d+)\) failed", line)
        if found:
            return f" (pid {found.group(1)} inside the unit)"
    return ""


def _details(line: str, log: Path) -> tuple[str, ...]:
    return (f"criu: {line}", f"log: {log}") if line else (f"log: {log}",)


def _lines(log: Path) -> list[str]:
    """The log's lines; of a log that ran wild, its beginning and end."""
    try:
        with open(log, "rb") as file:
            size = file.seek(0, 2)
            file.seek(0)
            data = file.read(min(size, _MAX_LOG))
            if size > _MAX_LOG:
                file.seek(size - _TAIL)
                data += file.read(_TAIL)
    except OSError:
        return []
    return data.decode("utf-8", "replace").splitlines()
