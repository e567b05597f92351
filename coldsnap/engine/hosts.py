"""Hosts as steps get them: read-only for a preview, bound to one attempt's time for an apply."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from coldsnap.artifact import canonical
from coldsnap.artifact.errors import ColdSnapError
from coldsnap.engine.cancel import cancelled
from coldsnap.sdk.host import FactRequest, Host, JobEvent, OperationRequest, OperationResult


class ReadOnlyHost:
    """A host that cannot be changed: what `observe`, `diff` and `known` see in a preview."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self.name = host.name

    @property
    def vars(self) -> Mapping[str, Any]:
        return self._host.vars

    def ask(self, request: FactRequest) -> Any:
        return self._host.ask(request)

    def ask_all(self, requests: Sequence[FactRequest]) -> list[Any]:
        return self._host.ask_all(requests)

    def perform(
        self,
        request: OperationRequest,
        *,
        timeout: float | None = None,
        on_event: Callable[[JobEvent], None] | None = None,
    ) -> OperationResult:
        del timeout, on_event
        raise self._refused(request.operation)

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
        raise self._refused(f"the upload of {remote}")

    def _refused(self, what: str) -> ColdSnapError:
        return ColdSnapError(
            "internal.change-in-preview",
            f"a step wanted to perform {what} while it may only observe",
            where=self.name,
            remedy="report it to the author of the step type",
        )


class BoundHost:
    """A host during one attempt: facts are fetched in one round trip, time is what is left.

    `deadline` is a reading of the monotonic clock, or None. After `cut` is set nothing new begins.
    """

    def __init__(
        self,
        host: Host,
        deadline: float | None,
        emit: Callable[[JobEvent], None],
        cut: threading.Event,
    ) -> None:
        self._host = host
        self._cut = cut
        self._deadline = deadline
        self._emit = emit
        self._answers: dict[str, Any] = {}
        self.name = host.name

    @property
    def vars(self) -> Mapping[str, Any]:
        return self._host.vars

    def prefetch(self, requests: Sequence[FactRequest]) -> None:
        """Ask all at once; what fails is asked again, alone, when the step asks it."""
        self._answers.clear()
        if len(requests) < 2:  # noqa: PLR2004 - a single fact is one round trip anyway
            return
        self._remaining()
        try:
            answers = self._host.ask_all(requests)
        except ColdSnapError:
            return
        self._answers = {
            _key(request): answer for request, answer in zip(requests, answers, strict=True)
        }

    def forget(self) -> None:
        """What was observed is old from now on."""
        self._answers.clear()

    def ask(self, request: FactRequest) -> Any:
        if self._answers:
            key = _key(request)
            if key in self._answers:
                return self._answers[key]
        self._remaining()
        return self._host.ask(request)

    def ask_all(self, requests: Sequence[FactRequest]) -> list[Any]:
        keys = [_key(request) for request in requests]
        if all(key in self._answers for key in keys):
            return [self._answers[key] for key in keys]
        self._remaining()
        return self._host.ask_all(requests)

    def perform(
        self,
        request: OperationRequest,
        *,
        timeout: float | None = None,
        on_event: Callable[[JobEvent], None] | None = None,
    ) -> OperationResult:
        self._answers.clear()
        left = self._remaining()
        limits = [limit for limit in (timeout, left) if limit is not None]
        return self._host.perform(
            request, timeout=min(limits, default=None), on_event=on_event or self._emit
        )

    def upload(
        self,
        local: Path,
        remote: str,
        *,
        sha256: str,
        mode: int = 0o644,
        on_event: Callable[[JobEvent], None] | None = None,
    ) -> bool:
        self._answers.clear()
        self._remaining()
        return self._host.upload(
            local, remote, sha256=sha256, mode=mode, on_event=on_event or self._emit
        )

    def _remaining(self) -> float | None:
        if self._cut.is_set():
            raise cancelled("cut off before it began", self.name)
        if self._deadline is None:
            return None
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise ColdSnapError(
                "step.timeout",
                "the time for this attempt is over",
                where=self.name,
                remedy="raise the step's timeout",
            )
        return left


def _key(request: FactRequest) -> str:
    return f"{request.fact} {canonical.dumps(request.args)}"
