"""The one error type: a code, what happened, where, why, and what to do.

It lives in the leaf package because the runtime on the target raises it too; it crosses
process and host borders as JSON and is rendered in one place (coldsnap.render.errors).
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True)
class Source:
    """A place in a text file; line and column count from 1."""

    file: str
    line: int
    column: int
    text: str = ""
    """The guilty line."""
    before: str = ""
    """The line above it, for context."""
    width: int = 1
    """How many characters to underline."""


@dataclass
class ColdSnapError(Exception):
    """What a user sees when something fails.

    Attributes:
        code: stable dotted name, ``area.reason``, documented in docs/troubleshooting.md.
        message: one line that says what failed, naming the thing.
        where: host, unit or file, as a short label ("gpu-1: unit u0"); empty if global.
        details: facts, one line each (digests compared, the first real error of a tool).
        cause: why, when known.
        remedy: what to do, in the imperative; a command where one exists.
        source: place in a plan or inventory file.
        changed: True when the failure left something changed (exit 3 instead of 1).
    """

    code: str
    message: str
    where: str = ""
    details: tuple[str, ...] = ()
    cause: str = ""
    remedy: str = ""
    source: Source | None = None
    changed: bool = False
    more: tuple[ColdSnapError, ...] = field(default=())
    """Further errors found in the same pass (a plan can have several)."""

    def __post_init__(self) -> None:
        super().__init__(f"{self.code}: {self.message}")

    def __str__(self) -> str:
        place = f"{self.where}: " if self.where else ""
        return f"error[{self.code}]: {place}{self.message}"

    def to_json(self) -> dict[str, Any]:
        """A JSON object with every field; `from_json` reads it back."""
        value = asdict(self)
        value["details"] = list(self.details)
        value["more"] = [error.to_json() for error in self.more]
        return value

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> ColdSnapError:
        source = value.get("source")
        return cls(
            code=str(value.get("code", "internal.unknown")),
            message=str(value.get("message", "")),
            where=str(value.get("where", "")),
            details=tuple(str(line) for line in value.get("details", ())),
            cause=str(value.get("cause", "")),
            remedy=str(value.get("remedy", "")),
            source=Source(**source) if source else None,
            changed=bool(value.get("changed", False)),
            more=tuple(cls.from_json(error) for error in value.get("more", ())),
        )
