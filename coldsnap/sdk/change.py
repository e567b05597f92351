"""What a step would do: the answer of `Step.diff`, and what a preview shows of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class Action(StrEnum):
    NONE = "none"
    """Nothing to do; shown as ``=``."""
    CREATE = "create"
    """``+``"""
    CHANGE = "change"
    """``~``"""
    STOP = "stop"
    """``-``"""
    UNKNOWN = "unknown"
    """Depends on outputs that are known after apply; shown as ``?``."""


@dataclass(frozen=True)
class Row:
    """One line of a preview: ``+ capsule  sha256:9be1..  1.9 GiB``."""

    action: Action
    noun: str
    detail: str = ""


@dataclass(frozen=True)
class Change:
    """A pure function of the spec and of what was seen.

    `data` holds JSON values that `apply` needs; it is kept in saved plans, so it must be small
    and free of secrets.
    """

    action: Action
    summary: str
    rows: tuple[Row, ...] = ()
    pauses_serving: bool = False
    pause_seconds: float | None = None
    data: Mapping[str, Any] = field(default_factory=dict)

    @property
    def is_pending(self) -> bool:
        """Whether `apply` has anything to do."""
        return self.action is not Action.NONE


def unchanged(summary: str, *rows: Row) -> Change:
    return Change(Action.NONE, summary, rows)
