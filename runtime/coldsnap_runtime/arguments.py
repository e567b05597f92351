"""The command line: ``VERB [--state-dir DIR] [--job ID]`` and the options of ``job`` verbs."""

from __future__ import annotations

DEFAULT_STATE_DIR = "/var/lib/coldsnap"

_FAMILIES = ("job", "lease")
"""Verbs that may be written as two words: ``job follow`` is ``job.follow``."""

_MAX_NUMBER = 1e15
_NUMBERS = {"--offset": "offset", "--wait": "wait", "--grace": "grace", "--older": "older"}


class UsageError(Exception):
    """The command line cannot be understood; the text says why."""


class Arguments:
    """What was typed.

    Attributes:
        verb: dotted name. state_dir, job: as given. words: further positional arguments.
        numbers: offset (bytes), wait, grace, older (seconds), as far as given.
    """

    def __init__(self, verb: str) -> None:
        self.verb = verb
        self.state_dir = DEFAULT_STATE_DIR
        self.job = ""
        self.words: list[str] = []
        self.numbers: dict[str, float] = {}


def parse(argv: list[str]) -> Arguments:
    """Raises UsageError."""
    words = list(argv)
    if not words or words[0].startswith("-"):
        raise UsageError("a verb is missing; the verb `verbs` lists them")
    verb = words.pop(0)
    if verb in _FAMILIES and words and not words[0].startswith("-"):
        verb = f"{verb}.{words.pop(0)}"
    arguments = Arguments(verb)
    while words:
        _take(words, arguments)
    if not arguments.state_dir.startswith("/"):
        raise UsageError(f"--state-dir must be absolute, not {arguments.state_dir!r}")
    return arguments


def _take(words: list[str], arguments: Arguments) -> None:
    word = words.pop(0)
    if not word.startswith("--"):
        arguments.words.append(word)
        return
    name, has_value, value = word.partition("=")
    if not has_value:
        if not words:
            raise UsageError(f"{name} needs a value")
        value = words.pop(0)
    if name == "--state-dir":
        arguments.state_dir = value
    elif name == "--job":
        arguments.job = value
    elif name in _NUMBERS:
        arguments.numbers[_NUMBERS[name]] = _number(name, value)
    else:
        raise UsageError(f"unknown option {name}")


def _number(name: str, value: str) -> float:
    try:
        number = float(value)
    except ValueError:
        raise UsageError(f"{name} needs a number, not {value!r}") from None
    if not 0 <= number < _MAX_NUMBER:
        raise UsageError(f"{name} is out of range: {value}")
    return number
