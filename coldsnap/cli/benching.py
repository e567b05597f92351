"""Cold starts and restores of the same units, in turns, by the product's own plans.

Both clocks run on the target: a cold start from the engine's start, a restore from the moment at
which the target is told of it, each to the first token of the same prompt.
"""

from __future__ import annotations

import os
import platform
import shlex
from collections.abc import Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from coldsnap.artifact.errors import ColdSnapError
from coldsnap.cli.signals import handed_over
from coldsnap.cli.wiring import ask_each, runtime_of
from coldsnap.render.bench import COLD, RESTORE, Measured

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from coldsnap.cli.bench_plans import BenchPlans
    from coldsnap.cli.plans import Loaded
    from coldsnap.cli.session import Session
    from coldsnap.engine.cancel import CancelToken
    from coldsnap.engine.outcome import RunResult
    from coldsnap.fleet import InventoryFleet
    from coldsnap.sdk.host import FactRequest, Host

_FACT = "coldsnap_core.facts:RuntimeVerb"
WARM, DROPPED = "warm", "dropped"
STATES: Mapping[str, tuple[str, ...]] = {
    WARM: (WARM,),
    DROPPED: (DROPPED,),
    "both": (WARM, DROPPED),
}


@dataclass(frozen=True)
class Counts:
    """How often each is measured."""

    cold: int
    restores: int
    cold_dropped: int
    """Cold starts with the page cache dropped."""

    def turns(self, state: str) -> Iterator[str]:
        """Kinds in their order: cold starts are spread over the restores, and one of these ends."""
        cold = self.cold if state == WARM else self.cold_dropped
        rounds = max(cold, self.restores)
        for number in range(rounds):
            for kind, count in ((COLD, cold), (RESTORE, self.restores)):
                if number >= rounds - count:
                    yield kind


class Bench:
    """Applies plans on one fleet and reads what they measured."""

    def __init__(self, session: Session, fleet: InventoryFleet, plans: BenchPlans) -> None:
        from coldsnap.engine.cancel import CancelToken

        self._session, self._fleet, self._plans = session, fleet, plans
        self._runtime = runtime_of(session, fleet)
        self._cancel: CancelToken = CancelToken()
        self._artifacts: tuple[str, ...] = ()
        self.profiles: dict[str, Mapping[str, Any]] = {}
        """Host -> what the probe told of it."""
        self.software: dict[str, dict[str, str]] = {}
        """Unit -> versions of the Python packages that its processes have mapped."""

    @property
    def criu(self) -> str:
        """Version in the runtime pack."""
        from coldsnap.store.runtime import show

        return str(show(self._runtime.archive)["facts"].get("criu", ""))

    @property
    def engine(self) -> str:
        return self._plans.restore.plan.engine or ""

    @contextmanager
    def cancellable(self) -> Iterator[None]:
        with handed_over(self._cancel.request):
            yield

    def captured(self) -> bool:
        """The artifact is there; that is mostly nothing to do. Whether the units started cold.

        Raises:
            ColdSnapError: of the capture.
        """
        result = self._apply(self._plans.capture)
        return any(
            row["outputs"].get("capture") for rows in result.outputs.values() for row in rows
        )

    def measure(self, kind: str, page_cache: str = "") -> list[Measured]:
        """One start of every unit, from nothing; `page_cache`: state that it begins from."""
        for loaded in self._plans.stop:
            self._apply(loaded)
        read = () if kind == COLD else self._artifacts
        if page_cache and (plan := self._plans.page_cache(page_cache, read)) is not None:
            self._apply(plan)
        result = self._apply(self._plans.cold if kind == COLD else self._plans.restore)
        measured = self._measured(kind, result)
        if kind == RESTORE:
            found = (row["outputs"].get("artifact") for r in result.outputs.values() for row in r)
            named = (one for one in found if isinstance(one, str) and one)
            self._artifacts = tuple(dict.fromkeys(named))
        load = os.getloadavg()[0]
        return [replace(one, load=load, page_cache=page_cache or WARM) for one in measured]

    def look(self) -> None:
        """Note what the units that serve now are made of."""
        from coldsnap.engine.place import runtime_place
        from coldsnap.sdk.host import FactRequest

        def question(host: Host) -> FactRequest:
            request = {"verb": "unit.status", "request": {"software": True}}
            return FactRequest(_FACT, {**request, **runtime_place(host, self._runtime)})

        for answer in ask_each(self._fleet, sorted(self.profiles), question):
            for unit in answer.value.get("units") or ():
                if unit.get("unit") in self._plans.units and unit.get("software"):
                    self.software[str(unit["unit"])] = dict(unit["software"])

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
                kept = found.setdefault((row["host"], row["unit"]), {"timings": []})
                kept["timings"].append(outputs.get("timing"))
                kept |= {k: v for k, v in outputs.items() if v is not None}
                if kind == RESTORE:
                    _require_restored(outputs, row["unit"])
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


def _require_restored(outputs: Mapping[str, Any], unit: str) -> None:
    """A plan may start cold as its last resort; that is no restore to be measured.

    Raises:
        ColdSnapError: ``bench.not-restored``.
    """
    provider = outputs.get("provider")
    if not isinstance(provider, Mapping) or provider.get("used") != "cold":
        return
    faults = [fault for fault in provider.get("faults") or () if isinstance(fault, Mapping)]
    raise ColdSnapError(
        "bench.not-restored",
        f"unit {unit} was started cold instead of being restored",
        details=tuple(f"{fault.get('code')}: {fault.get('reason')}" for fault in faults[:5]),
        remedy="mend the reason, or capture again",
    )


def all_measured(
    session: Session,
    bench: Bench,
    counts: Counts,
    states: Sequence[str],
    keep: Callable[[list[Measured]], object],
    *,
    caches_warm: bool = False,
) -> list[Measured]:
    """Capture if need be, one start of each that is not counted, then all the counted ones.

    Args:
        session: is told how it goes.
        bench: applies.
        counts: how often each.
        states: of the page cache, one after the other.
        keep: called with all measurements so far after each.
        caches_warm: the compile caches are filled, so no uncounted cold start is needed.
    """
    session.story("capturing, if this was not captured before")
    is_new = bench.captured()
    if not (is_new or caches_warm):
        session.story("one cold start that is not counted: it fills the compile caches")
        bench.measure(COLD)
    session.story("one restore that is not counted")
    bench.measure(RESTORE)
    bench.look()
    measured: list[Measured] = []
    for state in states:
        for kind in counts.turns(state):
            done = bench.measure(kind, state)
            measured += done
            keep(measured)
            for one in done:
                session.story(
                    f"{kind} of {one.unit} on {one.host}, page cache {state}: "
                    f"{one.first_token_seconds:.2f} s"
                )
    return measured


_AFTER = "the units are as the last finished step left them: coldsnap status"


def versions(bench: Bench, arguments: Sequence[str]) -> dict[str, Any]:
    """What the figures depend on, here and on the hosts."""
    import coldsnap

    hosts = {}
    for host, profile in bench.profiles.items():
        identity = profile.get("identity") or {}
        gpus = [gpu for gpu in identity.get("gpus") or () if isinstance(gpu, Mapping)]
        hosts[host] = {
            "kernel": identity.get("kernel", ""),
            "python": identity.get("python", ""),
            "cpu": (identity.get("cpu") or {}).get("model", ""),
            "cores": (identity.get("cpu") or {}).get("cores", 0),
            "nvidia_driver": identity.get("nvidia_driver", ""),
            "gpus": [str(gpu.get("name", "")) for gpu in gpus],
            "gpu_memory_bytes": [gpu.get("memory_total") for gpu in gpus],
        }
    return {
        "coldsnap": coldsnap.__version__,
        "criu": bench.criu,
        "python": platform.python_version(),
        "cores": os.cpu_count(),
        "hosts": hosts,
        "engine": bench.engine,
        "software": {unit: dict(found) for unit, found in bench.software.items()},
        "command": command_line(arguments),
        "load": list(os.getloadavg()),
    }


def command_line(arguments: Sequence[str]) -> str:
    """The command for a document: places of this machine become ``...``."""
    words = []
    for word in arguments:
        name, equals, value = word.partition("=")
        if value.startswith(("/", "~")):
            words.append(f"{name}{equals}...")
        elif word.startswith(("/", "~")):
            _, found, tail = word.rpartition("/plans/")
            words.append(f"plans/{tail}" if found else "...")
        else:
            words.append(shlex.quote(word))
    return " ".join(["coldsnap", *words])
