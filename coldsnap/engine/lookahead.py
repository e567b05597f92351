"""Fetching facts before they are asked: one round trip per host for all its instances."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from coldsnap.artifact.errors import ColdSnapError
from coldsnap.engine.context import Contexts
from coldsnap.engine.crash import Crashes
from coldsnap.engine.fleet import Fleet
from coldsnap.engine.instances import Expansion, Instance, StepInstances
from coldsnap.engine.preview import InstanceKey
from coldsnap.engine.rendering import UnknownOutput
from coldsnap.sdk.host import FactRequest
from coldsnap.sdk.spec import Spec


class LookAhead:
    """What an instance will read is known once its parameters are.

    One that refers to outputs waits for the step that brings them.
    """

    def __init__(
        self,
        expansion: Expansion,
        contexts: Contexts,
        fleet: Fleet,
        skips: Callable[[Instance], bool],
    ) -> None:
        self._steps = expansion.steps
        self._contexts, self._fleet, self._skips = contexts, fleet, skips
        self._specs: dict[InstanceKey, Spec] = {}
        self._asked: set[InstanceKey] = set()
        self._waits: dict[InstanceKey, str] = {}
        """Instance -> the step whose outputs it cannot be rendered without."""
        self._passed: set[str] = set()
        self._crashes = Crashes()

    def fetch(self, position: int) -> None:
        """Fetch for the step at `position` and all after it, unless that one has all it needs."""
        first = self._steps[position].instances
        if not all(self._is_asked(instance) for instance in first):
            self._fetch(self._steps[position:])
            # Rendered but never fetched is no harm: `ask` goes to the host by itself.
            self._asked.update(instance.key for instance in first)

    def fetch_all(self) -> None:
        """Fetch whatever can be fetched before anything is looked at."""
        self._fetch(self._steps)

    def _fetch(self, groups: Collection[StepInstances]) -> None:
        if requests := self._requests(groups):
            self._fleet.prefetch(requests)

    def passed(self, step: str) -> None:
        """The outputs of this step are known now, where they can be."""
        self._passed.add(step)

    def spec(self, instance: Instance) -> Spec:
        """The typed parameters, rendered once; raises as `Rendering.spec`."""
        spec = self._specs.get(instance.key)
        if spec is None:
            spec = self._specs[instance.key] = self._contexts.rendering.spec(instance)
        return spec

    def _requests(self, groups: Collection[StepInstances]) -> dict[str, list[FactRequest]]:
        requests: dict[str, list[FactRequest]] = {}
        for group in groups:
            for instance in group.instances:
                waits = self._waits.get(instance.key)
                if not self._is_asked(instance) and (waits is None or waits in self._passed):
                    reads = self._reads(instance)
                    if reads and instance.key.host:
                        requests.setdefault(instance.key.host, []).extend(reads)
        return requests

    def _is_asked(self, instance: Instance) -> bool:
        return instance.key in self._asked or self._skips(instance)

    def _reads(self, instance: Instance) -> Sequence[FactRequest]:
        reads: Sequence[FactRequest] = ()
        try:
            if self._contexts.rendering.holds(instance):
                spec = self.spec(instance)
                with self._crashes.told(instance):
                    reads = instance.step.reads(spec, self._contexts.for_preview(instance))
        except UnknownOutput as unknown:
            if unknown.step not in self._passed:
                self._waits[instance.key] = unknown.step
                return ()
            # That step has something to do: known after apply.
        except ColdSnapError:
            pass  # found again, and reported, when the instance is looked at
        self._asked.add(instance.key)
        return reads
