"""Jobs of the runtime pack: they outlive their caller, so they are awaited and ended by name."""

from __future__ import annotations

import shlex
import time
from typing import Any

import gevent
from pyinfra.api.command import StringCommand

from coldsnap.artifact.errors import ColdSnapError
from coldsnap.fleet.child.facts import host_arguments
from coldsnap.fleet.child.failures import lost_error
from coldsnap.fleet.child.output import EventLines, Sink
from coldsnap.fleet.child.shells import ConnectionLostError
from coldsnap.fleet.child.targets import Target

CANCEL_SECONDS = 60.0
"""A job has 30 s for undoing before its session is killed."""
REJOIN_SECONDS = 120.0
"""How long a host may stay away before its job is given up here (it goes on there)."""


def command(args: dict[str, Any], verb: str, job: str) -> str:
    """Shell text of ``PYTHON PACK job VERB ID``.

    Raises:
        ColdSnapError: ``internal.job-arguments``: the operation does not say where its pack is.
    """
    if not args.get("pack"):
        raise ColdSnapError("internal.job-arguments", "an operation with a job has no `pack`")
    argv = [str(args.get("python") or "python3"), str(args["pack"]), "job", verb, job]
    if args.get("state_dir"):
        argv += ["--state-dir", str(args["state_dir"])]
    return shlex.join(argv)


def cancel(target: Target, args: dict[str, Any], job: str) -> str:
    """End the job on its host; says in words what came of it. Not interruptible."""
    greenlet = gevent.spawn(_cancel, target, args, job)
    greenlet.join(CANCEL_SECONDS)
    if greenlet.ready() and greenlet.value:
        return str(greenlet.value)
    greenlet.kill(block=False)
    return f"its job {job} may still run there"


def _cancel(target: Target, args: dict[str, Any], job: str) -> str:
    events = EventLines(lambda _event: None)
    try:
        _run(target, command(args, "cancel", job), [events])
    except (ConnectionLostError, ColdSnapError):
        return ""
    events.close()
    if events.result is None or not events.result.get("ok"):
        return ""
    outcome = events.result.get("result") or {}
    if outcome.get("state") == "done":
        return f"its job {job} had finished before: what it did stands until a rollback"
    return f"its job {job} was ended and has undone what it began"


def wait(target: Target, args: dict[str, Any], job: str, sinks: list[Sink]) -> None:
    """Relay the job to its end, over as many connections as it takes.

    Raises:
        ColdSnapError: ``host.unreachable`` when the host stays away.
    """
    deadline = time.monotonic() + REJOIN_SECONDS
    pause = 0.2
    while True:
        try:
            return _run(target, command(args, "wait", job), sinks)
        except ConnectionLostError as error:
            failure = lost_error(target.address, str(error), changed=True)
            deadline = time.monotonic() + REJOIN_SECONDS  # it was there until now
        except ColdSnapError as error:
            failure = _given_up(target, error, job)
        if failure.code != "host.unreachable" or time.monotonic() > deadline:
            raise failure
        gevent.sleep(pause)
        pause = min(pause * 2, 5.0)


def _given_up(target: Target, error: ColdSnapError, job: str) -> ColdSnapError:
    error.changed = True
    error.cause = error.cause or f"the connection broke; job {job} goes on there"
    error.where = error.where or target.name
    error.remedy = "when the host is back: coldsnap plan resume"
    return error


def _run(target: Target, text: str, sinks: list[Sink]) -> None:
    with target.lane() as lane:
        lane.listeners += sinks
        lane.host.run_shell_command(StringCommand(text), **host_arguments(lane))
