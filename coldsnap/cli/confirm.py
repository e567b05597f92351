"""Asking before something is changed."""

from __future__ import annotations

import sys
from typing import TextIO

from coldsnap.artifact.errors import ColdSnapError


def confirm(question: str, *, yes: bool, stream: TextIO) -> None:
    """Return if the user agrees.

    Raises:
        ColdSnapError: ``cli.not-confirmed`` without a terminal to ask on, ``cli.declined``.
    """
    if yes:
        return
    if not sys.stdin.isatty():
        raise ColdSnapError(
            "cli.not-confirmed",
            "this needs a yes, and there is no terminal to ask on",
            remedy="add --yes",
        )
    stream.write(f"{question} [y/N] ")
    stream.flush()
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise ColdSnapError("cli.declined", "nothing was changed")
