"""From how a command ended to the process's exit code, and to what the user reads: one place.

0 done; 1 failed, nothing changed (bad flags too); 2 changes pending with --detailed-exitcode;
3 stopped part-way; 4 the saved plan is stale; 130 and 143 after SIGINT and SIGTERM.
"""

from __future__ import annotations

import errno
import os
import sys
import time
import traceback
from enum import IntEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from coldsnap.artifact.errors import ColdSnapError
from coldsnap.cli.signals import Terminated
from coldsnap.cli.streams import OutputError, lost

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


_FILE_TROUBLES = frozenset({
    errno.EACCES, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EISDIR, errno.ELOOP, errno.EMFILE,
    errno.ENAMETOOLONG, errno.ENOENT, errno.ENOSPC, errno.ENOTDIR, errno.EPERM, errno.EROFS,
})  # fmt: skip
"""What a name that somebody gave, or a disk, may answer at any place: no defect of ours."""


class ExitCode(IntEnum):
    DONE = 0
    FAILED = 1
    PENDING = 2
    PARTIAL = 3
    STALE = 4
    INTERRUPTED = 130
    TERMINATED = 143


def exit_code_of(call: Callable[[], object], arguments: Sequence[str]) -> int:
    """Run `call` and translate how it ends; errors are shown here and nowhere else."""
    try:
        code = call()
        sys.stdout.flush()
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else ExitCode.FAILED
    except OutputError as error:
        told = lost(error)
        return _report(told, arguments) if told else ExitCode.FAILED
    except (KeyboardInterrupt, Terminated) as signal:
        return _interrupted(signal)
    except Exception as error:  # noqa: BLE001 - the last net: no traceback reaches a user
        return _failed(error, arguments)
    return code if isinstance(code, int) else ExitCode.DONE


def _failed(error: Exception, arguments: Sequence[str]) -> int:
    if isinstance(error, ColdSnapError):
        return _report(error, arguments)
    # Usage errors of the argument parser are known by their shape: their package differs
    # between versions of typer.
    message: Any = getattr(error, "format_message", None)
    if type(error).__name__ == "NoArgsIsHelpError":
        sys.stderr.write(f"{error}\n")
        return ExitCode.FAILED
    if callable(message):
        return _report(_usage_error(error, str(message())), arguments)
    if type(error).__name__ == "Abort":
        return _interrupted(KeyboardInterrupt())
    if isinstance(error, OSError) and error.errno in _FILE_TROUBLES:
        return _report(_file_trouble(error, arguments), arguments)
    return _report(_unexpected(error, arguments), arguments)


def code_of(error: ColdSnapError) -> ExitCode:
    """Exit code that an error means."""
    if error.code == "run.cancelled":
        return ExitCode.INTERRUPTED
    if any(e.changed for e in (error, *error.more)):
        return ExitCode.PARTIAL
    return ExitCode.STALE if error.code == "plan.stale" else ExitCode.FAILED


def _report(error: ColdSnapError, arguments: Sequence[str]) -> int:
    from coldsnap.cli.session import show_error

    show_error(error, arguments)
    return code_of(error)


def _interrupted(signal: BaseException) -> int:
    terminated = isinstance(signal, Terminated)
    sys.stderr.write("\nterminated\n" if terminated else "\ninterrupted\n")
    return ExitCode.TERMINATED if terminated else ExitCode.INTERRUPTED


def _usage_error(error: Exception, message: str) -> ColdSnapError:
    context: Any = getattr(error, "ctx", None)
    path = context.command_path if context is not None else "coldsnap"
    return ColdSnapError(
        "cli.usage",
        message.strip().rstrip(".").replace("\n", " "),
        remedy=f"See: {path} --help",
    )


def _unexpected(error: Exception, arguments: Sequence[str]) -> ColdSnapError:
    """A defect of ours: one line for the user, the traceback into a file to attach."""
    log = _write_log(error, arguments)
    return ColdSnapError(
        "internal.unexpected",
        f"{type(error).__name__}: {error}",
        details=(f"log: {log}",) if log else (),
        cause="this is a defect in ColdSnap",
        remedy="report it and attach the log" if log else "report it with the command you ran",
    )


def _file_trouble(error: OSError, arguments: Sequence[str]) -> ColdSnapError:
    """A file that the system refused where nobody expected it; the log says where that was."""
    log = _write_log(error, arguments)
    name = "" if error.filename is None else f"{_shortened(os.fsdecode(error.filename))}: "
    return ColdSnapError(
        "file.refused",
        f"{name}{error.strerror}",
        details=(f"log: {log}",) if log else (),
        remedy="look at that file, its folder and disk, or name another",
    )


def _shortened(name: str) -> str:
    most = 200
    return name if len(name) <= most else f"{name[:most]}..."


def _write_log(error: Exception, arguments: Sequence[str]) -> Path | None:
    from platformdirs import user_log_path

    from coldsnap import __version__

    text = "".join(
        [
            f"coldsnap {__version__}, python {sys.version}\n",
            f"arguments: {_without_values(arguments)}\n\n",
            *traceback.format_exception(error),
        ]
    )
    name = f"error-{time.strftime('%Y%m%dT%H%M%S')}-{os.getpid()}.log"
    for folder in (user_log_path("coldsnap"), Path.cwd() / ".coldsnap" / "logs"):
        try:
            folder.mkdir(parents=True, exist_ok=True)
            path = folder / name
            path.touch(mode=0o600)
            path.write_text(text)
        except OSError:
            continue
        return path
    return None


def _without_values(arguments: Sequence[str]) -> str:
    """The command line without variables' values, which may be private."""
    shown = []
    hide = False
    for argument in arguments:
        if hide or argument.startswith("--var="):
            shown.append("--var=..." if argument.startswith("--var=") else "...")
        else:
            shown.append(argument)
        hide = argument == "--var"
    return " ".join(shown)
