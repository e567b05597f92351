"""What an inference engine's pack must tell: an `Engine`, as data.

An engine describes its launch, its readiness and the HTTP calls that quiesce, resume, hydrate,
sleep and wake it. The unit controller on the target performs them inside the unit's network
namespace; nothing in the core or in the runtime knows an engine's name. Entry point group
``coldsnap.engines``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

from coldsnap.sdk.topology import Model, Unit


@dataclass(frozen=True)
class HttpCall:
    """One request to the engine from inside its unit.

    `path` and strings in `body` may hold ``{payload}`` (path of the payload pack), ``{index}``
    (path of its index), ``{dir}`` (a private folder shared by controller and engine) and
    ``{provider}``: where a restored engine's weights may come from, ``native`` (the payload),
    ``recovery`` (the model's own files) or ``auto`` (native, else recovery).

    `expect` is a subset that the JSON answer must contain; empty accepts any 2xx.
    """

    method: str
    path: str
    body: Any = None
    timeout: float = 60.0
    port: str = "http"
    """Name of a port of the unit, or the number of a port inside it that is never published."""
    expect: Mapping[str, Any] = field(default_factory=dict)
    retry_seconds: float = 0.0
    """Repeat until it succeeds, this long (readiness, drain)."""


@dataclass(frozen=True)
class Launch:
    """How to start the engine of one unit on one host."""

    argv: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    inside: tuple[str, ...] = ()
    """Packages of the runtime pack put on the engine's PYTHONPATH."""
    caches: tuple[str, ...] = ()
    phases: tuple[tuple[str, str], ...] = ()
    """(name, regular expression) of lines in the engine's log that end a phase of its start; a
    group ``seconds`` tells how long it took. For people: nothing depends on them."""
    graphs: str = ""
    """What becomes of CUDA graphs: ``preserve-exec``, ``recreate-from-plan`` or ``disabled``; empty
    for an engine that has none. For the artifact's descriptor."""
    device_share: float = 0.0
    """Part of the memory of each of the unit's devices that must be free at its start, 0 to 1;
    0 where the engine takes what there is. Looked at before anything is started."""
    template: bool = False
    """The command parks before its engine starts, and that is what is captured (driver n580):
    it is `coldsnap_inside_template` or keeps to what that does."""


@dataclass(frozen=True)
class Acceptance:
    """How to ask for tokens and log-probabilities: an OpenAI ``/v1/completions`` call."""

    path: str = "/v1/completions"
    body: Mapping[str, Any] = field(default_factory=dict)
    """Merged over ``{"prompt", "max_tokens", "temperature": 0, "logprobs": 1}``."""
    tolerance: float = 0.0
    """Largest accepted difference of a log-probability; 0 means equal."""


class Engine(Protocol):
    """Pure functions of the plan; nothing here touches a host."""

    name: str

    def launch(self, unit: Unit, model: Model, host_vars: Mapping[str, Any]) -> Launch: ...

    def ready(self, unit: Unit) -> HttpCall:
        """The call that succeeds once the engine serves; the steps set how long it is tried."""

    def quiesce(self) -> tuple[HttpCall, ...]:
        """Drain, export the payload to ``{dir}`` if the engine has one, give memory back.

        A payload is announced by the engine writing ``{dir}/payload.pack`` and
        ``{dir}/payload.index.json``.
        """

    def resume(self) -> tuple[HttpCall, ...]:
        """Undo `quiesce` in the running engine: serve again (idempotent)."""

    def hydrate(self) -> tuple[HttpCall, ...]:
        """After a restore: bring payload and KV back from ``{payload}``; then serve.

        The answer tells ``provider``: what was used, ``native`` or ``recovery``; and where native
        was tried first, ``provider_code`` and ``provider_reason``: why it was not that.
        """

    def sleep(self) -> tuple[HttpCall, ...]: ...

    def wake(self) -> tuple[HttpCall, ...]: ...

    def acceptance(self, model: Model) -> Acceptance: ...


@runtime_checkable
class DrivenEngine(Protocol):
    """An engine that says which snapshot drivers it can be captured with."""

    drivers: tuple[str, ...]


def drivers_of(engine: Engine) -> tuple[str, ...]:
    """Snapshot drivers that an engine supports; ``criu`` alone if it says nothing.

    ``n580`` wants a template (`Launch.template`), ``c580`` and ``n610`` calls that leave the
    device's memory in a state that NVIDIA's driver can take out of it.
    """
    return engine.drivers if isinstance(engine, DrivenEngine) else ("criu",)


@runtime_checkable
class ExportingEngine(Protocol):
    """An engine that can write a payload while it serves: `materialize` needs it."""

    def export(self) -> tuple[HttpCall, ...]:
        """Write payload.pack and payload.index.json into ``{dir}/materialized``.

        The engine makes that folder, and serves requests meanwhile.
        """
