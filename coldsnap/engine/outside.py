"""Steps that a slice leaves out: looked at, never applied, so that others can use their outputs."""

from __future__ import annotations

from coldsnap.artifact.errors import ColdSnapError
from coldsnap.engine.context import Contexts
from coldsnap.engine.instances import Instance
from coldsnap.engine.rendering import UnknownOutput

NOT_SELECTED = "not in the slice"


class Outside:
    def __init__(self, contexts: Contexts, selected: frozenset[str] | None) -> None:
        self._contexts, self._selected = contexts, selected

    def leaves_out(self, instance: Instance) -> bool:
        return self._selected is not None and instance.key.step not in self._selected

    def look(self, instance: Instance) -> str:
        """Make its outputs known if it has nothing to do; returns why it is skipped.

        Whatever it raises concerns a step that nobody asked for: its outputs stay unknown, and
        an expression that needs them says so.
        """
        try:
            ctx = self._contexts.for_preview(instance)
            spec = self._contexts.rendering.spec(instance)
            seen = instance.step.observe(spec, ctx)
            if not instance.step.diff(spec, seen, ctx).is_pending:
                known = instance.step.known(spec, seen, ctx)
                self._contexts.rendering.put(instance.key, known)
        except (ColdSnapError, UnknownOutput):
            pass
        return NOT_SELECTED
