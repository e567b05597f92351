"""Hosts that are not there: canned answers, recorded operations, no pyinfra, no process."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from coldsnap.artifact.errors import ColdSnapError
from coldsnap.fleet.answers import Answers, distinct, key_of, value_of
from coldsnap.fleet.entries import FakeAnswer, FakeAnswers, HostEntry
from coldsnap.sdk.host import FactRequest, JobEvent, OperationRequest, OperationResult

ANY = "*"


class FakeHost:
    """Implements `coldsnap.sdk.host.Host`; `operations` and `uploads` tell what was asked."""

    def __init__(self, entry: HostEntry) -> None:
        self.entry = entry
        self.operations: list[OperationRequest] = []
        self.uploads: list[str] = []
        self._answers = Answers()
        self._lock = threading.Lock()
        self._fake = entry.fake or FakeAnswers()
        self._by_fact: dict[str, list[FakeAnswer]] = {}
        for answer in self._fake.answers:
            self._by_fact.setdefault(answer.fact, []).append(answer)

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
        if None in kept:
            self._check_reachable()
        return [
            value_of(self._answer(request) if answer is None else answer)
            for request, answer in zip(requests, kept, strict=True)
        ]

    def begin_prefetch(self, requests: Sequence[FactRequest]) -> Callable[[], None]:
        def finish() -> None:
            self._check_reachable()
            wanted = distinct(requests)
            self._answers.keep(list(wanted), [self._answer(asked) for asked in wanted.values()])

        return finish

    def begin_connect(self) -> Callable[[], None]:
        return self._check_reachable

    def forget(self) -> None:
        self._answers.forget()

    def perform(
        self,
        request: OperationRequest,
        *,
        timeout: float | None = None,
        on_event: Callable[[JobEvent], None] | None = None,
    ) -> OperationResult:
        """Record the operation; its result is the one that the inventory gives, or empty."""
        del timeout
        self._check_reachable()
        self.forget()
        with self._lock:
            self.operations.append(request)
        if on_event is not None:
            on_event(JobEvent("phase", f"pretending {request.operation}"))
        return OperationResult(changed=True, result=self._fake.results.get(request.operation, {}))

    def upload(
        self,
        local: Path,
        remote: str,
        *,
        sha256: str,
        mode: int = 0o644,
        on_event: Callable[[JobEvent], None] | None = None,
    ) -> bool:
        del local, sha256, mode, on_event
        self._check_reachable()
        self.forget()
        with self._lock:
            is_new = remote not in self.uploads
            self.uploads.append(remote)
        return is_new

    def _answer(self, request: FactRequest) -> Mapping[str, Any]:
        for answer in self._by_fact.get(request.fact, ()):
            if _fits(answer.args, request.args):
                return {"value": answer.value}
        return {"error": _unanswered(self.name, request).to_json()}

    def _check_reachable(self) -> None:
        if self._fake.unreachable:
            raise ColdSnapError(
                "host.unreachable",
                f"{self.name} cannot be reached: {self._fake.unreachable}",
                where=self.name,
            )


def _fits(wanted: Mapping[str, Any], given: Mapping[str, Any]) -> bool:
    """Whether `given` has all that `wanted` has, in objects inside it too; ``*`` is any value."""
    for name, value in wanted.items():
        found = given.get(name)
        if value == ANY and name in given:
            continue
        if isinstance(value, Mapping) and isinstance(found, Mapping):
            if not _fits(value, found):
                return False
        elif name not in given or found != value:
            return False
    return True


def _unanswered(name: str, request: FactRequest) -> ColdSnapError:
    return ColdSnapError(
        "host.fact-failed",
        f"the fake host has no answer for {request.fact}",
        where=name,
        details=(f"asked with {key_of(request).partition(' ')[2][:300]}",),
        remedy=f"add an answer for it to host {name} in the inventory",
    )
