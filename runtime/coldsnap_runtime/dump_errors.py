"""Why a dump failed, told by what is left of the unit as well as by CRIU."""

from __future__ import annotations

from typing import TYPE_CHECKING

from coldsnap.artifact.errors import ColdSnapError
from coldsnap_runtime.unit_processes import holders, proc_of

if TYPE_CHECKING:
    from pathlib import Path

    from coldsnap_runtime.unit_record import ProcessRef


def dump_error(error: ColdSnapError, init: ProcessRef, root_pid: int) -> ColdSnapError:
    """CRIU's error, or the reason behind it: the engine ended, a process holds an io_uring."""
    if not init.is_alive or not (proc_of(init.pid) / str(root_pid)).exists():
        return ColdSnapError(
            "checkpoint.engine-died",
            "the engine ended while it was dumped",
            details=error.details,
            remedy="see its log, launch it again, then capture again",
            changed=True,
        )
    if error.code == "criu.dump-failed":
        _name_ring(error, init, root_pid)
    return error


def copy_error(error: OSError, folder: Path) -> ColdSnapError:
    """What the unit has beside its memory could not be copied."""
    is_full = "No space left" in str(error)
    return ColdSnapError(
        "file.disk-full" if is_full else "checkpoint.copy-failed",
        f"the unit's files could not be copied to {folder}: {error}",
        remedy="free space below the state folder" if is_full else "see the system's log",
    )


def _name_ring(error: ColdSnapError, init: ProcessRef, root_pid: int) -> None:
    """Of a ring the kernel shows CRIU nothing that its message could tell."""
    found = holders(init.pid, root_pid, "io_uring")
    if found:
        names = ", ".join(f"pid {process.pid} ({process.name})" for process in found)
        error.cause = f"{names} holds an io_uring, which CRIU cannot save"
        error.remedy = "launch the unit with io_uring: deny (the default)"
