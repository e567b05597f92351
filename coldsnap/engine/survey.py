"""The preview: observe and diff every instance, apply nothing.

Facts are fetched in rounds (`LookAhead`): one round trip per host answers all instances whose
parameters are known; what depends on outputs that become known on the way needs another.
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
from coldsnap.engine.instances import Expansion, Instance
from coldsnap.engine.lookahead import LookAhead
from coldsnap.engine.outside import NOT_SELECTED, Outside
from coldsnap.engine.preview import InstancePreview
from coldsnap.engine.rendering import UnknownOutput
from coldsnap.sdk.change import Action, Change, Row

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
        self._outside, self._token = outside, token
        self._unreachable = unreachable
        self._ahead = LookAhead(expansion, contexts, fleet, self._is_lost)
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
                self._ahead.fetch(position)
                for part in pool.map(self._look_at_all, _parts(group.instances)):
                    previews += part
                self._ahead.passed(group.node.id)
        return previews

    def _is_lost(self, instance: Instance) -> bool:
        return instance.key.host in self._unreachable

    def _look_at_all(self, instances: Sequence[Instance]) -> list[InstancePreview]:
        return [self._look_at(instance) for instance in instances]

    def _look_at(self, instance: Instance) -> InstancePreview:
        key, kind = instance.key, instance.node.type
        if self._is_lost(instance):
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
            return InstancePreview(key, kind, self._foreseen(instance))
        except ColdSnapError as error:
            error.where = error.where or instance.label
            return InstancePreview(key, kind, None, error=error)

    def _foreseen(self, instance: Instance) -> Change:
        """What can be said of a step whose parameters are known after apply."""
        try:
            with self._crashes.told(instance):
                change = instance.step.foresee(self._contexts.for_preview(instance))
        except (ColdSnapError, UnknownOutput):
            change = None  # what it needs to know may come with the apply, too
        if change is not None:
            return change
        row = Row(Action.UNKNOWN, instance.node.type, KNOWN_AFTER_APPLY)
        return Change(Action.UNKNOWN, KNOWN_AFTER_APPLY, (row,))

    def _compared(self, instance: Instance) -> InstancePreview:
        ctx = self._contexts.for_preview(instance)
        spec = self._ahead.spec(instance)
        seen = instance.step.observe(spec, ctx)
        digest = canonical.digest(seen)
        change = instance.step.diff(spec, seen, ctx)
        if not change.is_pending:
            self._contexts.rendering.put(instance.key, instance.step.known(spec, seen, ctx))
        return InstancePreview(instance.key, instance.node.type, change, digest)


def _parts(instances: Sequence[Instance]) -> Iterator[Sequence[Instance]]:
    """Portions for the threads: at least one instance each, at most `_THREADS` portions."""
    size = max(1, -(-len(instances) // _THREADS))
    for start in range(0, len(instances), size):
        yield instances[start : start + size]
