"""Colour, and text that is safe to show.

Colour is decided once per stream. Text that came from a host, a store or a tool may hold
control characters; every string that is shown passes `clean`.
"""

from __future__ import annotations

import os
import re
from enum import StrEnum
from typing import TYPE_CHECKING, Final, TextIO

if TYPE_CHECKING:
    from collections.abc import Mapping

_CODES: Final[Mapping[str, str]] = {
    "create": "32",
    "change": "33",
    "stop": "31",
    "pause": "1;35",
    "error": "1;31",
    "warn": "33",
    "good": "32",
    "dim": "2",
    "strong": "1",
    "hint": "36",
}
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


class ColorMode(StrEnum):
    AUTO = "auto"
    ALWAYS = "always"
    NEVER = "never"


class Palette:
    """Paints strings, or leaves them alone when colour is off."""

    def __init__(self, enabled: bool = False) -> None:
        self.enabled = enabled

    def paint(self, text: str, style: str) -> str:
        """`text` in the style named (a key of the table above); unchanged without colour."""
        code = _CODES.get(style)
        if not self.enabled or code is None or not text:
            return text
        return f"\x1b[{code}m{text}\x1b[0m"


PLAIN: Final = Palette()


def wants_color(mode: ColorMode, stream: TextIO, env: Mapping[str, str] = os.environ) -> bool:
    """Whether to colour `stream`: the flag, then NO_COLOR, then FORCE_COLOR, then a terminal."""
    if mode is not ColorMode.AUTO:
        return mode is ColorMode.ALWAYS
    if env.get("NO_COLOR"):
        return False
    if env.get("FORCE_COLOR", "0") not in ("", "0"):
        return True
    return stream.isatty() and env.get("TERM") != "dumb"


def clean(text: object, limit: int = 4000) -> str:
    """One line of printable text: control and bidirectional characters become ``?``."""
    line = str(text)
    if len(line) > limit:
        line = line[:limit] + "..."
    return _CONTROL.sub("?", line).replace("\t", "    ").replace("\n", " ")
