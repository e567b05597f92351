"""The host as a step sees it: facts to ask, operations to perform, bytes to upload.

Facts and operations are named ``package.module:Name``; they are genuine pyinfra facts and
operations and are imported only in the fleet's child process. Steps never import pyinfra.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol


@dataclass(frozen=True)
class FactRequest:
    """A question that only reads. `args` are JSON values and keyword arguments of the fact."""

    fact: str
    args: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class OperationRequest:
    """A change.

    With `job` set, the operation runs a verb of the runtime pack as that job: the fleet then
    passes the job's events on while the operation runs, and cancels the job on time-out or
    cancel, so that no remote process survives.
    """

    operation: str
    args: Mapping[str, Any] = field(default_factory=dict)
    job: str | None = None


@dataclass(frozen=True)
class JobEvent:
    """Progress of a running operation, as the runtime reports it.

    `kind` is ``phase`` (message says what begins), ``progress`` (done/total in bytes, or
    unitless) or ``log``.
    """

    kind: str
    message: str = ""
    done: int | None = None
    total: int | None = None
    unit: str = "B"


@dataclass(frozen=True)
class OperationResult:
    changed: bool
    result: Any = None
    """For runtime verbs: the verb's result object. Otherwise None."""
    stdout: str = ""
    stderr: str = ""


class Host(Protocol):
    """One target of the inventory. Methods block; they are called from many threads."""

    @property
    def name(self) -> str: ...

    @property
    def vars(self) -> Mapping[str, Any]: ...

    def ask(self, request: FactRequest) -> Any:
        """The fact's value (JSON). Answers prefetched for the step are used first.

        Raises:
            ColdSnapError: ``host.unreachable``, ``host.fact-failed``.
        """

    def ask_all(self, requests: Sequence[FactRequest]) -> list[Any]:
        """Several facts in one round trip, in order."""

    def perform(
        self,
        request: OperationRequest,
        *,
        timeout: float | None = None,
        on_event: Callable[[JobEvent], None] | None = None,
    ) -> OperationResult:
        """Run an operation and wait for its end; `timeout` in seconds.

        Raises:
            ColdSnapError: the runtime's own error if a verb failed; ``host.operation-failed``,
                ``host.timeout``, ``host.unreachable``, ``run.cancelled``.
        """

    def upload(
        self,
        local: Path,
        remote: str,
        *,
        sha256: str,
        mode: int = 0o644,
        on_event: Callable[[JobEvent], None] | None = None,
    ) -> bool:
        """Put a file by temporary name, fsync, digest check, rename. False if it was there.

        Bulk transport of the connector, never pyinfra's put: a copy for local hosts, OpenSSH
        for ssh hosts, the docker archive API for containers.
        """
