"""Dispatch: argv and a request on stdin to a verb, its events and its result to stdout."""

from __future__ import annotations

import contextlib
import errno
import importlib
import os
import signal
import sys
import time
from typing import TYPE_CHECKING, Any, NoReturn

from coldsnap_runtime.arguments import Arguments, UsageError, parse
from coldsnap_runtime.context import Cancelled, Context
from coldsnap_runtime.protocol import failure, read_request, success, write_line
from coldsnap_runtime.timing import boottime
from coldsnap_runtime.verbs import VERBS, Verb

if TYPE_CHECKING:
    from collections.abc import Callable

    from coldsnap.artifact.errors import ColdSnapError
    from coldsnap_runtime.job_work import JobRun

_JOB_VERBS = {
    "job.follow": "job_follow:follow",
    "job.wait": "job_follow:wait",
}
"""Verbs that write their own lines and read no request."""
_DISK = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)


def main(argv: list[str]) -> int:
    """Run one verb; returns the exit status: 0 with a result, 1 with an error."""
    received = boottime()
    try:
        return _run(argv, received)
    except BrokenPipeError:
        # Whoever listened has gone; a job goes on, and is found again by its id.
        with contextlib.suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 1


def _run(argv: list[str], received: float) -> int:
    state_dir = ""
    try:
        arguments = parse(argv)
        state_dir = arguments.state_dir
        if arguments.verb in _JOB_VERBS:
            status: int = _function(_JOB_VERBS[arguments.verb])(arguments)
            return status
        return _run_verb(arguments, received)
    except UsageError as error:
        line = _failure("runtime.usage", str(error))
    except _CallerEnded:
        line = _failure("job.detached", "the caller was ended; a job that it started goes on")
    except BrokenPipeError:
        raise
    except Exception as error:  # noqa: BLE001  (the border: everything becomes a result)
        line = failure(_explained(error, state_dir))
    write_line(line)
    return 1


def _run_verb(arguments: Arguments, received: float) -> int:
    verb = VERBS.get(arguments.verb)
    if verb is None:
        raise UsageError(_unknown(arguments.verb))
    if verb.plain:
        write_line(success(_function(verb.target)(arguments)))
        return 0
    if arguments.words:
        raise UsageError(f"unexpected argument {arguments.words[0]!r}")
    request = read_request()
    if not arguments.job:
        signal.signal(signal.SIGTERM, _end_caller)
        context = Context(arguments.state_dir, _pack(), write_line, received=received)
        line = _result_line(verb, request, context)
        if verb.mutating:
            _give_back(arguments.state_dir)
        write_line(line)
        return 0 if line["ok"] else 1
    if not verb.mutating:
        raise UsageError(f"{arguments.verb} changes nothing and so is no job; leave --job out")
    return _run_job(arguments, verb, request, received)


def _run_job(arguments: Arguments, verb: Verb, request: dict[str, Any], received: float) -> int:
    from coldsnap_runtime.job_start import run_as_job  # noqa: PLC0415  (start-up time)
    from coldsnap_runtime.job_state import Job  # noqa: PLC0415

    try:
        job = Job(arguments.state_dir, arguments.job)
    except ValueError as error:
        raise UsageError(str(error)) from None
    signal.signal(signal.SIGTERM, _end_caller)
    signal.signal(signal.SIGINT, _end_caller)

    def work(run: JobRun) -> dict[str, Any]:
        context = Context(arguments.state_dir, _pack(), run.emit, arguments.job, received)
        return _result_line(verb, request, context)

    return run_as_job(job, arguments.verb, request, work)


def _result_line(verb: Verb, request: dict[str, Any], context: Context) -> dict[str, Any]:
    """Run the verb, cancellable by SIGTERM (and Ctrl-C outside a job)."""
    try:
        _cancel_on_signal(context)  # a cancel that came early is raised in here
        return success(_function(verb.target)(request, context))
    except (Cancelled, KeyboardInterrupt):
        return _failure("run.cancelled", "cancelled; what was begun has been undone")
    except BrokenPipeError:
        if not context.job:
            raise
        return _failure("runtime.internal", "a pipe broke")
    except Exception as error:  # noqa: BLE001  (the border: everything becomes a result)
        return failure(_explained(error, context.state_dir))
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)


def answer_of(name: str, request: dict[str, Any], context: Context) -> dict[str, Any]:
    """The result line of a reading verb that is asked along with others."""
    verb = VERBS.get(name)
    if verb is None or not verb.only_reads(request) or verb.plain or name == "batch":
        return _failure("request.invalid", f"{name[:80]!r} is no reading verb")
    try:
        return success(_function(verb.target)(request, context))
    except (BrokenPipeError, KeyboardInterrupt):
        raise
    except Exception as error:  # noqa: BLE001  (the border: everything becomes a result)
        return failure(_explained(error, context.state_dir))


def _give_back(state_dir: str) -> None:
    from coldsnap_runtime.state_ownership import give_back_state  # noqa: PLC0415  (start-up time)

    with contextlib.suppress(OSError):
        give_back_state(state_dir)


def _cancel_on_signal(context: Context) -> None:
    # The first one only: a second must not interrupt the undoing.
    def cancel(number: int, frame: object) -> None:
        del number, frame
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        context.cancel()

    signal.signal(signal.SIGTERM, cancel)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGTERM, signal.SIGINT, signal.SIGHUP))


class _CallerEnded(BaseException):
    """This process only waits for a job and was told to stop."""


def _end_caller(number: int, frame: object) -> NoReturn:
    del number, frame
    raise _CallerEnded


def _function(target: str) -> Callable[..., Any]:
    module, _, name = target.partition(":")
    function: Callable[..., Any] = getattr(
        importlib.import_module(f"coldsnap_runtime.{module}"), name
    )
    return function


def _pack() -> str:
    return os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def _unknown(verb: str) -> str:
    import difflib  # noqa: PLC0415  (start-up time)

    near = difflib.get_close_matches(verb, VERBS, n=1)
    hint = f"; did you mean {near[0]!r}?" if near else "; the verb `verbs` lists them"
    return f"unknown verb {verb[:80]!r}{hint}"


def _failure(code: str, message: str) -> dict[str, Any]:
    from coldsnap.artifact.errors import ColdSnapError  # noqa: PLC0415  (start-up time)

    return failure(ColdSnapError(code, message))


def _explained(error: Exception, state_dir: str) -> ColdSnapError:
    from coldsnap.artifact.errors import ColdSnapError  # noqa: PLC0415

    if isinstance(error, ColdSnapError):
        return error
    if isinstance(error, OSError) and error.errno in _DISK:
        from coldsnap.artifact.files import file_error  # noqa: PLC0415

        return file_error(error, error.filename or state_dir)
    if isinstance(error, (EOFError, ValueError)) and "marshal" in str(error) and _forget_code():
        return ColdSnapError(
            "runtime.code-damaged",
            f"compiled code in {sys.pycache_prefix} was damaged; it was removed",
            cause="the disk was full, or it lost what was written",
            remedy="do the same again: the code is compiled anew",
        )
    place = _write_traceback(state_dir)
    return ColdSnapError(
        "runtime.internal",
        f"unexpected {type(error).__name__}: {error}"[:1000],
        details=(f"traceback: {place}",) if place else (),
        cause="a defect of the runtime, or a host it does not know yet",
        remedy="report it with that file" if place else "report it",
    )


def _forget_code() -> bool:
    """Remove the byte code that this pack keeps beside the state; False if it keeps none."""
    import shutil  # noqa: PLC0415

    if not sys.pycache_prefix:
        return False
    shutil.rmtree(sys.pycache_prefix, ignore_errors=True)
    return True


def _write_traceback(state_dir: str) -> str:
    """Append the current traceback to the host's log; its path, or empty if it has no room."""
    import traceback  # noqa: PLC0415

    text = f"--- {time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime())} pid {os.getpid()}\n"
    text += traceback.format_exc()
    path = os.path.join(state_dir, "log", "runtime.log")
    try:
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        with open(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
    except OSError:
        return ""
    return path


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
