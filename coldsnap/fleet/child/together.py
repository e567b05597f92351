"""Facts that are cheaper together: several questions to one program, in one start of it.

A fact class says so by three class methods, which it has beside what pyinfra wants of it::

    together_key(**args) -> str                     equal keys can be asked together
    together(asked: [(class, args), ...]) -> str    one command for all of them
    apart(output: [line, ...], count) -> [[line, ...], ...]    its output, a part for each
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from coldsnap.artifact.errors import ColdSnapError


class Askable(Protocol):
    """What is known of a question here; see `coldsnap.fleet.child.facts.Question`."""

    fact: Any
    given: dict[str, Any]
    arguments: dict[str, Any]
    lines: list[str]
    error: ColdSnapError | None


A = TypeVar("A", bound=Askable)


@dataclass(frozen=True)
class Bundle(Generic[A]):
    """Questions that one command answers."""

    members: list[A]
    command: str
    """Empty for a question that is asked alone, by its own command."""

    def share(self, lines: list[str], error: ColdSnapError | None) -> None:
        """Hand each member its part of the output."""
        count = len(self.members)
        parts = [lines] * count if error else _kind(self.members[0]).apart(lines, count)
        for member, part in zip(self.members, parts, strict=True):
            member.lines, member.error = list(part), error


def bundles(questions: Sequence[A]) -> list[Bundle[A]]:
    """Each question in one of them; the first members are in the order of `questions`."""
    groups: dict[str, list[A]] = {}
    for number, question in enumerate(questions):
        groups.setdefault(_key(question) or str(number), []).append(question)
    found: list[Bundle[A]] = []
    for members in groups.values():
        command = _command(members) if len(members) > 1 else ""
        found += [Bundle(members, command)] if command else [Bundle([m], "") for m in members]
    return found


def _command(members: Sequence[Askable]) -> str:
    """Empty if the fact's code cannot make one: then each is asked alone, and says why."""
    try:
        return str(_kind(members[0]).together([(_kind(m), m.given) for m in members]))
    except Exception:  # noqa: BLE001  # a fact is foreign code
        return ""


def _key(question: Askable) -> str:
    key = getattr(_kind(question), "together_key", None)
    if key is None:
        return ""
    return f"{key(**question.given)} {sorted(question.arguments.items())!r}"


def _kind(question: Askable) -> Any:
    return type(question.fact)
