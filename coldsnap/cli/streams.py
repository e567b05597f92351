"""The three standard streams: there from the start, and what it means when stdout is lost."""

from __future__ import annotations

import io
import os
import sys
from typing import Final

from coldsnap.artifact.errors import ColdSnapError

_STREAMS: Final = (("stdin", "r"), ("stdout", "w"), ("stderr", "w"))


class OutputError(OSError):
    """What was said on stdout did not get out."""


class Answers(io.TextIOWrapper):
    """stdout, whose failures can be told from those of other files."""

    def write(self, text: str, /) -> int:
        try:
            return super().write(text)
        except OSError as error:
            raise OutputError(error.errno, error.strerror) from error

    def flush(self) -> None:
        try:
            super().flush()
        except OSError as error:
            raise OutputError(error.errno, error.strerror) from error


def prepare() -> None:
    """Put /dev/null in place of a closed stdin, stdout or stderr, and watch over stdout.

    Otherwise the next file that is opened (a journal, say) gets the number, and what is meant
    for the terminal is written into it.
    """
    for number, (name, mode) in enumerate(_STREAMS):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest free number, which is this one
            os.set_inheritable(number, True)
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(number, mode, closefd=False))
    out = sys.stdout
    if isinstance(out, io.TextIOWrapper):
        form = {
            "encoding": out.encoding,
            # What a terminal cannot show (a box, a file's odd name) must not cost the answer.
            "errors": "replace" if out.errors == "strict" else out.errors,
            "line_buffering": out.line_buffering,
            "write_through": out.write_through,
        }
        sys.stdout = Answers(out.detach(), **form)  # type: ignore[arg-type]


def lost(error: OutputError) -> ColdSnapError | None:
    """What to tell about it; nothing when its reader has gone (``| head``)."""
    # Else the interpreter tries again at exit, fails, and gives an exit code of its own.
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    if isinstance(error.__cause__, BrokenPipeError):
        return None
    return ColdSnapError(
        "cli.no-output",
        f"the answer could not be written to stdout: {error.strerror}",
        remedy="send stdout to a place with space",
    )
