"""Collecting errors, so that one pass over a document reports all that is wrong with it."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from coldsnap.artifact.errors import ColdSnapError, Source

MAX_PROBLEMS = 50
"""More than that is one cause shown many times."""


def near(name: str, known: Iterable[str]) -> str:
    """The known name that `name` most likely meant, or an empty string."""
    names = sorted(known)
    by_lower = {candidate.lower(): candidate for candidate in names}
    found = difflib.get_close_matches(name.lower()[:200], by_lower, n=1, cutoff=0.6)
    return by_lower[found[0]] if found else ""


def hint(name: str, known: Iterable[str], see: str = "") -> str:
    """``did you mean "timeout"?  See: coldsnap step show core.probe``.

    Lists the known names if none is near and there are few.
    """
    names = sorted(known)
    meant = near(name, names)
    if meant:
        text = f'did you mean "{meant}"?'
    elif names and len(names) <= 12:  # noqa: PLR2004 - a longer list is no help on one line
        text = f"known: {', '.join(names)}"
    else:
        text = ""
    return "  ".join(part for part in (text, f"See: {see}" if see else "") if part)


def shown(value: object, limit: int = 60) -> str:
    """A value as it may stand in a message: quoted text, cut at `limit` characters."""
    if isinstance(value, str):
        text = value if len(value) <= limit else value[: limit - 3] + "..."
        return '"' + "".join(c if c.isprintable() else repr(c)[1:-1] for c in text) + '"'
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return f"{value:.6g}" if isinstance(value, float) else f"{value}"[:limit]
    return "a list" if isinstance(value, (list, tuple)) else "a map"


@dataclass
class Problems:
    """Errors in the order they were found; those past `MAX_PROBLEMS` are dropped."""

    found: list[ColdSnapError] = field(default_factory=list)

    def add(
        self,
        code: str,
        message: str,
        source: Source | None = None,
        *,
        remedy: str = "",
        cause: str = "",
        details: tuple[str, ...] = (),
    ) -> None:
        self.keep(
            ColdSnapError(code, message, source=source, remedy=remedy, cause=cause, details=details)
        )

    def keep(self, error: ColdSnapError) -> None:
        """Take an error, and apart from it those it carries; the same one is taken once."""
        for each in (error, *error.more):
            single = replace(each, more=()) if each.more else each
            if len(self.found) < MAX_PROBLEMS and not any(
                _same(single, other) for other in self.found
            ):
                self.found.append(single)

    def raise_if_any(self) -> None:
        """Raise the first error in document order, the others in its ``more``.

        Raises:
            ColdSnapError: if anything was found.
        """
        if self.found:
            first, *rest = sorted(self.found, key=_place)
            raise replace(first, more=tuple(rest))


def _same(one: ColdSnapError, other: ColdSnapError) -> bool:
    return (one.code, one.message, one.source) == (other.code, other.message, other.source)


def _place(error: ColdSnapError) -> tuple[str, int, int]:
    source = error.source
    return (source.file, source.line, source.column) if source else ("", 0, 0)
