"""Questions that one command answers: which go together, and how the answers come apart."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from coldsnap.artifact.errors import ColdSnapError
from coldsnap.fleet.child.together import bundles


class Alone:
    """An ordinary fact."""


class Social:
    @classmethod
    def together_key(cls, place: str, **_args: Any) -> str:
        return place

    @classmethod
    def together(cls, asked: list[tuple[type, dict[str, Any]]]) -> str:
        return "; ".join(f"ask {kind.__name__} {args['n']}" for kind, args in asked)

    @classmethod
    def apart(cls, output: list[str], count: int) -> list[list[str]]:
        return [[line] for line in output][:count]


class Broken(Social):
    @classmethod
    def together(cls, asked: list[tuple[type, dict[str, Any]]]) -> str:
        raise ValueError("no command")


@dataclass
class Question:
    fact: Any
    given: dict[str, Any] = field(default_factory=dict)
    arguments: dict[str, Any] = field(default_factory=dict)
    lines: list[str] = field(default_factory=list)
    error: ColdSnapError | None = None


def social(n: int, place: str = "here", **arguments: Any) -> Question:
    return Question(Social(), {"place": place, "n": n}, arguments)


def test_equal_keys_go_together_whatever_lies_between():
    asked = [social(1), Question(Alone()), social(2), social(3, "there")]
    found = bundles(asked)
    assert [bundle.members for bundle in found] == [[asked[0], asked[2]], [asked[1]], [asked[3]]]
    assert [bundle.command for bundle in found] == ["ask Social 1; ask Social 2", "", ""]


def test_another_user_is_another_question():
    assert len(bundles([social(1), social(2, _sudo=True)])) == 2


def test_answers_come_apart_and_an_error_is_everybodys():
    asked = [social(1), social(2)]
    (bundle,) = bundles(asked)
    bundle.share(["one", "two"], None)
    assert [question.lines for question in asked] == [["one"], ["two"]]
    error = ColdSnapError("host.fact-failed", "no answer")
    bundle.share([], error)
    assert [question.error for question in asked] == [error, error]


def test_a_fact_that_cannot_make_the_command_is_asked_alone():
    asked = [Question(Broken(), {"place": "here", "n": n}) for n in (1, 2)]
    assert [bundle.members for bundle in bundles(asked)] == [[asked[0]], [asked[1]]]
