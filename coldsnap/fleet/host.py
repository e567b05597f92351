"""A host that is reached through the child process."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from coldsnap.artifact.errors import ColdSnapError
from coldsnap.fleet.answers import Answers, distinct, key_of, value_of
from coldsnap.fleet.cancels import Cancels
from coldsnap.fleet.entries import HostEntry
from coldsnap.fleet.link import Call, ChildDiedError, JobSink, Link, died
from coldsnap.fleet.results import job_event, operation_result
from coldsnap.fleet.upload import Upload, put
from coldsnap.sdk.host import FactRequest, JobEvent, OperationRequest, OperationResult

FACT_SECONDS = 300.0
"""A fact that takes longer is no fact: they are to be cheap."""
CONNECT_GRACE = 30.0
"""What connecting, and the child, may add to the time of a request."""
END_GRACE = 150.0
"""What ending a job adds to the time-out of an operation: it undoes what it began."""


class RemoteHost:
    """Implements `coldsnap.sdk.host.Host` for @local, @ssh and @docker."""

    def __init__(self, entry: HostEntry, link: Link, cancels: Cancels) -> None:
        self.entry = entry
        self._link = link
        self._cancels = cancels
        self._answers = Answers()

    @property
    def name(self) -> str:
        return self.entry.name

    @property
    def vars(self) -> Mapping[str, Any]:
        return self.entry.vars

    def ask(self, request: FactRequest) -> Any:
        return self.ask_all([request])[0]

    def ask_all(self, requests: Sequence[FactRequest]) -> list[Any]:
        keys = [key_of(request) for request in requests]
        kept = self._answers.find(keys)
        missing = {
            key: request
            for key, request, answer in zip(keys, requests, kept, strict=True)
            if answer is None
        }
        fresh: dict[str, Mapping[str, Any]] = {}
        if missing:
            answers = self._collect_facts(self._post_facts(list(missing.values())))
            fresh = dict(zip(missing, answers, strict=True))
        return [
            value_of(fresh[key] if answer is None else answer)
            for key, answer in zip(keys, kept, strict=True)
        ]

    def begin_prefetch(self, requests: Sequence[FactRequest]) -> Callable[[], None]:
        """Send the questions; the function that is returned waits and keeps the answers."""
        wanted = distinct(requests)
        call = self._post_facts(list(wanted.values()))

        def finish() -> None:
            self._answers.keep(list(wanted), self._collect_facts(call))

        return finish

    def begin_connect(self) -> Callable[[], None]:
        """Start connecting; the function that is returned waits and raises the error."""
        call = self._link.post({"do": "connect", "host": self.name})

        def finish() -> None:
            self._link.collect(call, self.entry.connect_timeout * 4 + CONNECT_GRACE)

        return finish

    def forget(self) -> None:
        self._answers.forget()

    def perform(
        self,
        request: OperationRequest,
        *,
        timeout: float | None = None,
        on_event: Callable[[JobEvent], None] | None = None,
    ) -> OperationResult:
        self.forget()
        body = {
            "do": "operation",
            "host": self.name,
            "operation": request.operation,
            "args": dict(request.args),
            "job": request.job,
            "timeout": timeout,
        }
        seconds = None if timeout is None else timeout + END_GRACE
        try:
            answer = self._perform(body, seconds, _job_sink(on_event))
        finally:
            self.forget()
        return operation_result(answer, self.name)

    def upload(
        self,
        local: Path,
        remote: str,
        *,
        sha256: str,
        mode: int = 0o644,
        on_event: Callable[[JobEvent], None] | None = None,
    ) -> bool:
        self.forget()
        task = Upload(self.entry, local, remote, sha256.removeprefix("sha256:"), mode, on_event)
        with self._cancels.running(task.cancel):
            try:
                return put(task, self._shell)
            finally:
                self.forget()

    def _perform(self, body: Mapping[str, Any], seconds: float | None, sink: JobSink) -> Any:
        try:
            return self._once(self._link.post(body), seconds, sink)
        except ChildDiedError as error:
            if body["job"] is None:
                raise died(self.name, str(error), changed=True) from None
        try:  # the job went on without the child: a new one waits for its result
            return self._once(self._link.post({**body, "do": "job-wait"}), seconds, sink)
        except ChildDiedError as error:
            raise died(self.name, str(error), changed=True) from None

    def _once(self, call: Call, seconds: float | None, sink: JobSink) -> Any:
        """The answer of a call that ends with us: nothing runs on when this thread gives up."""
        with self._cancels.running(lambda: self._link.cancel(call)):
            try:
                return self._link.once(call, seconds, sink)
            except (ColdSnapError, ChildDiedError):
                raise
            except BaseException:
                self._link.cancel(call)
                raise

    def _post_facts(self, requests: Sequence[FactRequest]) -> Call:
        facts = [{"fact": request.fact, "args": dict(request.args)} for request in requests]
        return self._link.post(
            {"do": "facts", "host": self.name, "facts": facts, "timeout": FACT_SECONDS}
        )

    def _collect_facts(self, call: Call) -> list[Mapping[str, Any]]:
        answers: list[Mapping[str, Any]] = self._link.collect(call, FACT_SECONDS + CONNECT_GRACE)
        return answers

    def _shell(self, command: str, timeout: float) -> tuple[int | None, str, str]:
        request = {"do": "shell", "host": self.name, "command": command, "timeout": timeout}
        done = self._link.ask(request, timeout + CONNECT_GRACE)
        return done["status"], done["stdout"], done["stderr"]


def _job_sink(on_event: Callable[[JobEvent], None] | None) -> JobSink:
    def sink(event: Mapping[str, Any]) -> None:
        found = job_event(event)
        if found is not None and on_event is not None:
            on_event(found)

    return sink
