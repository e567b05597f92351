"""The preview: observe and diff every instance, apply nothing.

Facts are fetched in rounds: all instances whose parameters are known say what they will read,
and one round trip per host answers it all. Only what depends on outputs that become known on
the way needs another round.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

from coldsnap.artifact import canonical
from coldsnap.artifact.errors import ColdSnapError
from coldsnap.engine.cancel import CancelToken
from coldsnap.engine.context import Contexts
from coldsnap.engine.crash import Crashes
from coldsnap.engine.fleet import Fleet
from coldsnap.engine.instances import Expansion, Instance, StepInstances
from coldsnap.engine.outside import NOT_SELECTED, Outside
from coldsnap.engine.preview import InstanceKey, InstancePreview
from coldsnap.engine.rendering import UnknownOutput
from coldsnap.sdk.change import Action, Change, Row
from coldsnap.sdk.host import FactRequest
from coldsnap.sdk.spec import Spec

_THREADS = 32
UNREACHABLE = "host unreachable"
KNOWN_AFTER_APPLY = "(known after apply)"


class Survey:
    def __init__(
        self,
        expansion: Expansion,
        contexts: Contexts,
        outside: Outside,
        fleet: Fleet,
        token: CancelToken,
        unreachable: frozenset[str],
    ) -> None:
        self._expansion, self._contexts = expansion, contexts
        self._outside, self._fleet, self._token = outside, fleet, token
        self._unreachable = unreachable
        self._specs: dict[InstanceKey, Spec] = {}
        self._asked: set[InstanceKey] = set()
        self._waits: dict[InstanceKey, str] = {}
        """Instance -> the step whose outputs it cannot be rendered without."""
        self._passed: set[str] = set()
        self._crashes = Crashes()

    def run(self) -> list[InstancePreview]:
        """Previews in topological order, then host, then unit.

        Raises:
            ColdSnapError: ``run.cancelled``.
        """
        previews: list[InstancePreview] = []
        with ThreadPoolExecutor(_THREADS, thread_name_prefix="coldsnap-survey") as pool:
            for position, group in enumerate(self._expansion.steps):
                self._token.check()
                self._fetch(self._expansion.steps[position:], group)
                for part in pool.map(self._look_at_all, _parts(group.instances)):
                    previews += part
                self._passed.add(group.node.id)
        return previews

    def _fetch(self, groups: Sequence[StepInstances], first: StepInstances) -> None:
        """One round trip per host, when the step at hand has facts that nobody asked yet."""
        if all(self._is_asked(instance) for instance in first.instances):
            return
        requests: dict[str, list[FactRequest]] = {}
        for group in groups:
            for instance in group.instances:
                waits = self._waits.get(instance.key)
                if not self._is_asked(instance) and (waits is None or waits in self._passed):
                    reads = self._reads(instance)
                    if reads and instance.key.host:
                        requests.setdefault(instance.key.host, []).extend(reads)
        # Rendered but never fetched is no harm: `ask` goes to the host by itself.
        self._asked.update(instance.key for instance in first.instances)
        if requests:
            self._fleet.prefetch(requests)

    def _is_asked(self, instance: Instance) -> bool:
        return instance.key in self._asked or instance.key.host in self._unreachable

    def _reads(self, instance: Instance) -> Sequence[FactRequest]:
        try:
            if not self._contexts.rendering.holds(instance):
                reads: Sequence[FactRequest] = ()
            else:
                spec = self._spec(instance)
                with self._crashes.told(instance):
                    reads = instance.step.reads(spec, self._contexts.for_preview(instance))
        except UnknownOutput as unknown:
            if unknown.step not in self._passed:
                self._waits[instance.key] = unknown.step
                return ()
            reads = ()  # that step has something to do: known after apply
        except ColdSnapError:
            reads = ()  # found again, and reported, when the instance is looked at
        self._asked.add(instance.key)
        return reads

    def _look_at_all(self, instances: Sequence[Instance]) -> list[InstancePreview]:
        return [self._look_at(instance) for instance in instances]

    def _look_at(self, instance: Instance) -> InstancePreview:
        key, kind = instance.key, instance.node.type
        if key.host in self._unreachable:
            return InstancePreview(key, kind, None, skipped=UNREACHABLE)
        try:
            with self._crashes.told(instance):
                if self._outside.leaves_out(instance):
                    self._outside.look(instance)
                    return InstancePreview(key, kind, None, skipped=NOT_SELECTED)
                if not self._contexts.rendering.holds(instance):
                    return InstancePreview(key, kind, None, skipped="when is false")
                return self._compared(instance)
        except UnknownOutput:
            row = Row(Action.UNKNOWN, kind, KNOWN_AFTER_APPLY)
            change = Change(Action.UNKNOWN, KNOWN_AFTER_APPLY, (row,))
            return InstancePreview(key, kind, change)
        except ColdSnapError as error:
            error.where = error.where or instance.label
            return InstancePreview(key, kind, None, error=error)

    def _compared(self, instance: Instance) -> InstancePreview:
        ctx = self._contexts.for_preview(instance)
        spec = self._spec(instance)
        seen = instance.step.observe(spec, ctx)
        digest = canonical.digest(seen)
        change = instance.step.diff(spec, seen, ctx)
        if not change.is_pending:
            self._contexts.rendering.put(instance.key, instance.step.known(spec, seen, ctx))
        return InstancePreview(instance.key, instance.node.type, change, digest)

    def _spec(self, instance: Instance) -> Spec:
        spec = self._specs.get(instance.key)
        if spec is None:
            spec = self._specs[instance.key] = self._contexts.rendering.spec(instance)
        return spec


def _parts(instances: Sequence[Instance]) -> Iterator[Sequence[Instance]]:
    """Portions for the threads: at least one instance each, at most `_THREADS` portions."""
    size = max(1, -(-len(instances) // _THREADS))
    for start in range(0, len(instances), size):
        yield instances[start : start + size]
