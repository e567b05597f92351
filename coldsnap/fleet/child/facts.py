"""Facts of one host, many in one round trip.

Each fact's command runs in a shell of its own, one after the other, under one script that is fed
on standard input (a script as an argument may not exceed 128 KiB). Between them the script prints
a random boundary and the exit status on both streams, which is how the outputs come apart again.
"""

from __future__ import annotations

import base64
import secrets
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field
from inspect import getcallargs
from typing import Any

import gevent
from pyinfra.api.arguments import CONNECTOR_ARGUMENT_KEYS, pop_global_arguments
from pyinfra.api.command import StringCommand
from pyinfra.api.facts import ShortFactBase

from coldsnap.artifact.errors import ColdSnapError
from coldsnap.fleet.child import together
from coldsnap.fleet.child.connectors import text_lines
from coldsnap.fleet.child.failures import last_lines, lost_error, sudo_refusal
from coldsnap.fleet.child.lane import Lane, Outcome
from coldsnap.fleet.child.names import load_fact
from coldsnap.fleet.child.shells import ConnectionLostError
from coldsnap.fleet.child.targets import Target

ANSWERS_LIMIT = 16 << 20
"""Bytes of all answers of one round trip."""
_NO_COMMAND = "##COLDSNAP_NO_COMMAND##"


@dataclass
class Question:
    """One asked fact on its way."""

    name: str
    fact: Any
    """Instance of the fact."""
    short: Any
    """Instance of the short fact that refines it, or None."""
    command: str
    arguments: dict[str, Any]
    """pyinfra's global arguments that the fact was given (``_sudo`` ...)."""
    given: dict[str, Any] = field(default_factory=dict)
    """The fact's own arguments."""
    lines: list[str] = field(default_factory=list)
    error: ColdSnapError | None = None


def ask(target: Target, requests: Sequence[dict[str, Any]], timeout: float) -> list[dict[str, Any]]:
    """Answers in the order of `requests`: ``{"value": JSON}`` or ``{"error": ...}``.

    Raises:
        ColdSnapError: the host cannot be asked at all.
    """
    try:
        return _ask(target, requests, timeout)
    except ConnectionLostError:
        pass  # facts only read: ask again over a new connection
    try:
        return _ask(target, requests, timeout)
    except ConnectionLostError as error:
        raise lost_error(target.address, str(error), changed=False) from error


def _ask(
    target: Target, requests: Sequence[dict[str, Any]], timeout: float
) -> list[dict[str, Any]]:
    with target.lane() as lane:
        prepared = [_prepare(lane, str(request["fact"]), request["args"]) for request in requests]
        bundles = together.bundles([found for found in prepared if isinstance(found, Question)])
        leads = [_lead(bundle) for bundle in bundles]
        for group in _groups(leads):
            try:
                with gevent.Timeout(timeout, TimeoutError()):
                    _run(target, lane, group)
            except TimeoutError:
                raise _late(target, group, timeout) from None
        for bundle, lead in zip(bundles, leads, strict=True):
            if bundle.command:
                bundle.share(lead.lines, lead.error)
        return [_answer(target, found) for found in prepared]


def _lead(bundle: together.Bundle[Question]) -> Question:
    """The question that is asked for all of a bundle."""
    first = bundle.members[0]
    if not bundle.command:
        return first
    names = ", ".join(sorted({member.name for member in bundle.members}))
    return Question(names, first.fact, None, bundle.command, first.arguments)


def _late(target: Target, group: list[Question], timeout: float) -> ColdSnapError:
    names = ", ".join(sorted({question.name for question in group}))
    return ColdSnapError(
        "host.timeout",
        f"{names} gave no answer within {timeout:g} s",
        where=target.name,
        remedy="check the load of the host and its disks",
    )


def _prepare(lane: Lane, name: str, args: dict[str, Any]) -> Question | ColdSnapError | Any:
    """The question, or the error or finished value that makes asking needless."""
    try:
        found = load_fact(name)
        is_short = issubclass(found, ShortFactBase)
        fact = found.fact() if is_short else found()
        rest = dict(args)
        given, keys = pop_global_arguments(lane.state, lane.host, rest)
        if reason := fact.check_preconditions(lane.state, lane.host):
            return ColdSnapError("host.fact-failed", f"{name}: {reason}")
        values: dict[str, Any] = dict(given)
        arguments = {key: values[key] for key in keys if key in CONNECTOR_ARGUMENT_KEYS}
        if fact.shell_executable:
            arguments["_shell_executable"] = fact.shell_executable
        short = found() if is_short else None
        return Question(name, fact, short, _command(fact, rest), arguments, rest)
    except ColdSnapError as error:
        return error
    except ConnectionLostError:
        raise
    except Exception as error:  # noqa: BLE001  # a fact is foreign code
        return _unusable(name, error)


def _unusable(name: str, error: Exception) -> ColdSnapError:
    return ColdSnapError(
        "host.fact-failed",
        f"{name} could not be asked",
        cause=f"{type(error).__name__}: {error}"[:500],
    )


def _command(fact: Any, args: dict[str, Any]) -> str:
    bound = {}
    if callable(fact.command):
        bound = getcallargs(fact.command, **args)
        bound.pop("self", None)
        text = _raw(fact.command(**bound))
    else:
        text = _raw(fact.command)
    required = fact.requires_command
    needed = required(**bound) if callable(required) else required
    if not needed:
        return text
    return (
        f"if command -v {shlex.quote(str(needed))} >/dev/null 2>&1; then ( {text}\n); "
        f"else echo '{_NO_COMMAND}'; fi"
    )


def _raw(command: Any) -> str:
    return str(command.get_raw_value()) if isinstance(command, StringCommand) else str(command)


def _groups(questions: list[Question]) -> list[list[Question]]:
    """Those that run as the same user with the same environment go in one script."""
    groups: dict[str, list[Question]] = {}
    for question in questions:
        groups.setdefault(repr(sorted(question.arguments.items())), []).append(question)
    return list(groups.values())


def _run(target: Target, lane: Lane, group: list[Question]) -> None:
    boundary = f"cs-{secrets.token_hex(8)}"
    arguments = {**host_arguments(lane), **group[0].arguments}
    shell = str(arguments.get("_shell_executable") or "sh")
    script = "".join(_part(boundary, n, shell, item.command) for n, item in enumerate(group))
    arguments["_stdin"] = [script]
    lane.output_limit = ANSWERS_LIMIT
    lane.host.run_shell_command(StringCommand("sh"), **arguments)
    refused = sudo_refusal(target.address, lane.last)
    for number, question in enumerate(group):
        question.error = refused or _take(lane.last, boundary, number, question)


def host_arguments(lane: Lane) -> dict[str, Any]:
    """Arguments of pyinfra that the inventory sets for every command of the host (sudo)."""
    given, _ = pop_global_arguments(lane.state, lane.host, {})
    return {key: value for key, value in given.items() if key in CONNECTOR_ARGUMENT_KEYS}


def _part(boundary: str, number: int, shell: str, command: str) -> str:
    mark = f"{boundary}.{number}"
    return (
        f"{shell} -c {shlex.quote(command)} </dev/null; r=$?; "
        f"printf '\\n%s %s\\n' {mark} $r; printf '\\n%s\\n' {mark} >&2\n"
    )


def _take(outcome: Outcome, boundary: str, number: int, question: Question) -> ColdSnapError | None:
    """Cut the output of one fact out of the script's; its error if it failed."""
    out, status = _cut(outcome.stdout.text(), boundary, number)
    err, _ = _cut(outcome.stderr.text(), boundary, number)
    if outcome.stdout.is_cut and number == 0:
        status = None  # its beginning is lost
    if status is None:
        cause = last_lines(outcome)[-1:] or ("its output ended early",)
        if outcome.stdout.is_cut:
            cause = (f"the answers are longer than {ANSWERS_LIMIT >> 20} MiB",)
        return ColdSnapError(
            "host.fact-failed", f"{question.name} gave no answer", cause="".join(cause)
        )
    question.lines = text_lines(out)
    if status == "0":
        return None
    return ColdSnapError(
        "host.fact-failed",
        f"{question.name} failed with exit status {status}",
        details=tuple(line[:500] for line in err.strip().splitlines()[-5:]),
    )


def _cut(text: str, boundary: str, number: int) -> tuple[str, str | None]:
    """(output, exit status) of part `number`; the status is None if its boundary is missing."""
    start = 0
    if number:
        before = text.find(f"\n{boundary}.{number - 1}")
        if before < 0:
            return "", None
        start = text.find("\n", before + 1) + 1
    end = text.find(f"\n{boundary}.{number}", max(start - 1, 0))
    if end < 0:
        return text[start:], None
    line, _, _ = text[end + 1 :].partition("\n")
    return text[start:end], line.partition(" ")[2] or "0"


def _answer(target: Target, found: Any) -> dict[str, Any]:
    error = found if isinstance(found, ColdSnapError) else found.error
    if error is None:
        try:
            return {"value": plain(_value(found))}
        except Exception as failure:  # noqa: BLE001  # a fact is foreign code
            error = ColdSnapError(
                "host.fact-failed",
                f"{found.name} could not be understood",
                details=tuple(line[:200] for line in found.lines[:3]),
                cause=f"{type(failure).__name__}: {failure}"[:500],
            )
    error.where = error.where or target.name
    return {"error": error.to_json()}


def _value(question: Question) -> Any:
    value = question.fact.default()
    if question.lines and question.lines != [_NO_COMMAND]:
        value = question.fact.process(question.lines)
    return question.short.process_data(value) if question.short is not None else value


def plain(value: Any) -> Any:
    """`value` as JSON has it: facts return sets, dates, named tuples and the like."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (set, frozenset)):
        return sorted((plain(item) for item in value), key=str)
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, bytes):
        return base64.b64encode(value).decode("ascii")
    return value.isoformat() if hasattr(value, "isoformat") else str(value)
