"""Cold starts and restores of the same units, in turns, by the product's own plans.

Both clocks run on the target: a cold start from the engine's start, a restore from the moment at
which the target is told of it, each to the first token of the same prompt.
"""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from coldsnap.artifact.errors import ColdSnapError
from coldsnap.cli.plans import Loaded
from coldsnap.cli.signals import handed_over
from coldsnap.cli.wiring import runtime_of
from coldsnap.render.bench import Measured

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from coldsnap.cli.session import Session
    from coldsnap.engine.cancel import CancelToken
    from coldsnap.engine.outcome import RunResult
    from coldsnap.fleet import InventoryFleet
    from coldsnap.plan.document import Document
    from coldsnap.plan.registry import Registry

COLD, RESTORE = "cold start", "restore"


@dataclass(frozen=True)
class BenchPlans:
    """What is applied, and how often a plan of the user's is behind it: `stop` ends the units."""

    capture: Loaded
    cold: Loaded
    restore: Loaded
    stop: tuple[Loaded, ...]
    units: tuple[str, ...]


def plans_of(session: Session, capture: str, restore: str, cold: str) -> BenchPlans:
    """The user's two plans, and those that follow from them.

    Args:
        session: its variables are given to each plan that declares them.
        capture: file of a plan with a template use ``ENGINE.capture``.
        restore: file of the plan that brings its artifact back.
        cold: file of a plan that starts the units cold and records answers (core.accept); empty:
            the capture plan with ``ENGINE.cold`` instead of its steps.

    Raises:
        ColdSnapError: ``plan.*``, ``bench.no-cold-plan``.
    """
    from coldsnap.plan.document import read_document
    from coldsnap.plan.registry import Registry

    registry = Registry.installed()
    first, second = read_document(Path(capture)), read_document(Path(restore))
    captured = _loaded(session, first, registry)
    if cold:
        started = _loaded(session, read_document(Path(cold)), registry)
    else:
        started = _derived(session, first, registry, "cold", [_cold_use(captured, first, registry)])
    restored = _loaded(session, second, registry)
    stops = [_derived(session, document, registry, "stop", _STOP) for document in (first, second)]
    topologies = [loaded.plan.topology for loaded in (captured, restored)]
    units = dict.fromkeys(unit.id for found in topologies if found for unit in found.units)
    return BenchPlans(captured, started, restored, tuple(stops), tuple(units))


_STOP: list[dict[str, Any]] = [
    {"id": "stage", "type": "core.stage"},
    {
        "id": "stop",
        "type": "core.evict",
        "needs": ["stage"],
        "with": {"keep": "none", "grace": 0},
    },
]
"""SIGKILL for every process of the units, as a crash would."""


def _cold_use(captured: Loaded, document: Document, registry: Registry) -> dict[str, Any]:
    """The use of ``ENGINE.cold`` that starts what the plan captures."""
    engine = captured.plan.engine or ""
    name = f"{engine}.cold"
    uses = [item for item in document.data["steps"] if item.get("uses") == f"{engine}.capture"]
    if name not in registry.template_files or not uses:
        raise ColdSnapError(
            "bench.no-cold-plan",
            f"{document.file} does not say how its units are started cold",
            details=(f"looked for a use of {engine}.capture, and for a template {name}",),
            remedy="write a plan that launches them and records answers: --cold-plan FILE",
        )
    inputs = registry.template(name).inputs
    given = {key: value for key, value in (uses[0].get("with") or {}).items() if key in inputs}
    return {"id": "cold", "uses": name, "with": given}


def _derived(
    session: Session,
    document: Document,
    registry: Registry,
    suffix: str,
    steps: Sequence[Mapping[str, Any]],
) -> Loaded:
    from coldsnap.plan.document import parse_document

    data = {**document.data, "steps": list(steps)}
    data["name"] = f"{data.get('name', 'bench')}-{suffix}"[:63]
    text = json.dumps(data, indent=1)
    made = parse_document(text.encode(), f"{document.file} ({suffix})")
    return _loaded(session, made, registry)


def _loaded(session: Session, document: Document, registry: Registry) -> Loaded:
    """Load with those of the session's variables that the plan declares."""
    from coldsnap.plan.loading import load_document
    from coldsnap.plan.variables import Given

    declared = document.data.get("vars") or {} if isinstance(document.data, dict) else {}
    flags = tuple(f for f in session.flags.variables if f.partition("=")[0] in declared)
    given = Given(flags=flags, files=session.flags.variable_files)
    return Loaded(load_document(document, registry, given), document.text, registry)


class Bench:
    """Applies plans on one fleet and reads what they measured."""

    def __init__(self, session: Session, fleet: InventoryFleet, plans: BenchPlans) -> None:
        from coldsnap.engine.cancel import CancelToken

        self._session, self._fleet, self._plans = session, fleet, plans
        self._runtime = runtime_of(session, fleet)
        self._cancel: CancelToken = CancelToken()
        self.profiles: dict[str, Mapping[str, Any]] = {}
        """Host -> what the probe told of it."""

    @property
    def criu(self) -> str:
        """Version in the runtime pack."""
        from coldsnap.store.runtime import show

        return str(show(self._runtime.archive)["facts"].get("criu", ""))

    @contextmanager
    def cancellable(self) -> Iterator[None]:
        with handed_over(self._cancel.request):
            yield

    def captured(self) -> None:
        """The artifact is there; that is mostly nothing to do.

        Raises:
            ColdSnapError: of the capture.
        """
        self._apply(self._plans.capture)

    def cold(self) -> list[Measured]:
        """One cold start of every unit, from nothing."""
        self._stop()
        return self._measured(COLD, self._apply(self._plans.cold))

    def restored(self) -> list[Measured]:
        """One restore of every unit, from nothing."""
        self._stop()
        return self._measured(RESTORE, self._apply(self._plans.restore))

    def _stop(self) -> None:
        for loaded in self._plans.stop:
            self._apply(loaded)

    def _apply(self, loaded: Loaded) -> RunResult:
        from coldsnap.engine.applying import apply
        from coldsnap.engine.setup import Setup

        setup = Setup(
            plan=loaded.plan,
            text=loaded.text,
            fleet=self._fleet,
            registry=loaded.registry,
            project=self._session.project,
            runtime=self._runtime,
        )
        result = apply(replace(setup, cancel=self._cancel))
        if result.error is not None:
            error = result.error
            error.more = (*error.more, *result.errors[1:])
            raise error
        if result.exit_code:
            raise ColdSnapError("run.cancelled", "cancelled", remedy=_AFTER)
        return result

    def _measured(self, kind: str, result: RunResult) -> list[Measured]:
        """What the run says of each unit.

        Raises:
            ColdSnapError: ``bench.nothing-measured``.
        """
        found: dict[tuple[str, str], dict[str, Any]] = {}
        for rows in result.outputs.values():
            for row in rows:
                outputs = row["outputs"]
                _take(found.setdefault((row["host"], row["unit"]), {}), outputs)
                if isinstance(profile := outputs.get("profile"), Mapping):
                    self.profiles[row["host"]] = profile
        measured = [
            Measured.read(kind, host, unit, values, result.seconds)
            for (host, unit), values in sorted(found.items())
            if unit and "first_token_seconds" in values
        ]
        if not measured:
            raise ColdSnapError(
                "bench.nothing-measured",
                f"the plan of the {kind} measured no first token",
                remedy="it needs a step core.accept for each unit",
            )
        return measured


def _take(kept: dict[str, Any], outputs: Mapping[str, Any]) -> None:
    """Add a step's outputs; of the timings the one that tells most."""
    for name, value in outputs.items():
        is_less = name == "timing" and _spans(kept.get(name)) >= _spans(value)
        if value is not None and not is_less:
            kept[name] = value


def _spans(timing: Any) -> int:
    return len(timing.get("spans") or ()) if isinstance(timing, Mapping) else 0


_AFTER = "the units are as the last finished step left them: coldsnap status"


def versions(bench: Bench) -> dict[str, Any]:
    """What the figures depend on, here and on the hosts."""
    import coldsnap

    hosts = {}
    for host, profile in bench.profiles.items():
        identity = profile.get("identity") or {}
        hosts[host] = {
            "kernel": identity.get("kernel", ""),
            "python": identity.get("python", ""),
            "cpu": (identity.get("cpu") or {}).get("model", ""),
            "gpus": [str(gpu.get("name", "")) for gpu in identity.get("gpus") or ()],
        }
    return {
        "coldsnap": coldsnap.__version__,
        "criu": bench.criu,
        "python": platform.python_version(),
        "cores": os.cpu_count(),
        "hosts": hosts,
    }
