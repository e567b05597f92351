"""Steps and template uses -> the expanded steps, with every check on the way."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from coldsnap.artifact.errors import ColdSnapError, Source
from coldsnap.plan.document import Document
from coldsnap.plan.frames import Scope as Names
from coldsnap.plan.items import Item, ancestors, read_items
from coldsnap.plan.model import Frame, OnFailure, StepNode
from coldsnap.plan.problems import Problems
from coldsnap.plan.references import Reader, Visible, check_condition, check_value_references
from coldsnap.plan.registry import Registry
from coldsnap.plan.report import Checked
from coldsnap.plan.static_fields import StaticFields, read_static, sources_below
from coldsnap.plan.templates import Template
from coldsnap.plan.validation import check_schema

MAX_STEPS = 2000
"""Steps of an expanded plan."""


@dataclass(frozen=True)
class Around:
    """What a template's steps inherit from its use."""

    frame: Frame
    document: Document
    prefix: str = ""
    needs: tuple[str, ...] = ()
    hosts: str | None = None
    when: tuple[tuple[str, Frame], ...] = ()
    root: str | None = None
    """Id of the use in the plan's own document."""
    outer: tuple[str, ...] = ()
    """Names of the templates around."""


@dataclass
class _Level:
    """One document's steps while they are expanded."""

    around: Around
    items: Sequence[Item]
    frame: Frame
    uses: dict[str, Frame]
    """The frame's own map of uses, filled while they are expanded."""
    visible: Visible
    last: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Local id -> expanded ids that ``needs`` of it means."""
    nodes: dict[str, list[StepNode]] = field(default_factory=dict)
    """Local id -> its expanded steps."""


class Expander:
    """Expands one plan."""

    def __init__(self, registry: Registry, names: Names, problems: Problems) -> None:
        self._registry, self._names, self._problems = registry, names, problems
        self._count = 0

    def expand(self, raw: Sequence[Any], around: Around, visible: Visible) -> list[StepNode]:
        """The expanded steps in document order; what is wrong is added to the problems."""
        level = self._level(raw, around, visible)
        if level is None:
            return []
        return [node for item in level.items for node in level.nodes.get(item.id, ())]

    def _level(self, raw: Sequence[Any], around: Around, visible: Visible) -> _Level | None:
        items = read_items(raw, around.document, self._problems)
        needed = ancestors(items, around.document, self._problems)
        if needed is None:
            return None
        uses: dict[str, Frame] = {}
        steps = {item.id: around.prefix + item.id for item in items if not item.is_use}
        frame = replace(around.frame, steps=steps, uses=uses)
        visible = replace(visible, outputs={item.id: self._outputs(item) for item in items})
        level = _Level(around, items, frame, uses, visible)
        in_order = sorted(items, key=lambda item: len(needed[item.id]))
        for item in in_order:
            if item.is_use:
                self._use(item, level, needed[item.id])
            else:
                self._step(item, level, needed[item.id])
        return level

    def _outputs(self, item: Item) -> Sequence[str]:
        """Names of the outputs of a step or use; empty if its kind is unknown (reported)."""
        if not item.is_use:
            step = self._registry.steps.get(item.kind)
            return tuple(step.outputs) if step else ()
        template = self._template(item)
        return tuple(template.outputs) if template else ()

    def _template(self, item: Item) -> Template | None:
        try:
            return self._registry.template(item.kind)
        except ColdSnapError as error:
            self._problems.keep(error)
            return None

    def _step(self, item: Item, level: _Level, needed: frozenset[str]) -> None:
        step = self._registry.steps[item.kind]
        around, document = level.around, level.around.document
        expanded = around.prefix + item.id
        level.last[item.id] = (expanded,)
        self._count += 1
        if self._count > MAX_STEPS:
            raise ColdSnapError(
                "plan.too-large", f"the plan expands to more than {MAX_STEPS} steps"
            )
        reader = Reader(item.label, needed, step.scope, own=item.id)
        self._check_with(item, level, reader)
        when = self._when(item, level, reader)
        fields = self._static(item, level)
        sources = sources_below(document, item.path, item.raw)
        level.nodes[item.id] = [
            StepNode(
                id=expanded,
                type=item.kind,
                needs=self._needs(item, level),
                hosts=fields.hosts if fields.hosts is not None else around.hosts,
                raw_with=item.raw.get("with", {}),
                when=when,
                timeout=fields.timeout,
                retry=fields.retry,
                on_failure=OnFailure(item.raw.get("on_failure", "recover")),
                source=item.source,
                template=level.frame.template or None,
                use=around.root,
                frame=level.frame,
                outer_when=around.when,
                sources=sources,
            )
        ]

    def _use(self, item: Item, level: _Level, needed: frozenset[str]) -> None:
        level.last[item.id] = self._needs(item, level)
        template = self._template(item)
        reader = Reader(item.label, needed, own=item.id)
        self._check_with(item, level, reader)
        when = self._when(item, level, reader)
        fields = self._static(item, level)
        frame = self._use_frame(item, template, level) if template else None
        if template is None or frame is None:
            return
        around = Around(
            frame=frame,
            document=template.document,
            prefix=f"{level.around.prefix}{item.id}.",
            needs=self._needs(item, level),
            hosts=fields.hosts if fields.hosts is not None else level.around.hosts,
            when=(*level.around.when, *(((when, level.frame),) if when is not None else ())),
            root=level.around.root or item.id,
            outer=(*level.around.outer, template.name),
        )
        inputs = tuple(template.inputs)
        inner = self._level(
            template.steps, around, Visible(None, inputs, {}, level.visible.has_model)
        )
        if inner is None:
            return
        self._check_outputs(template, inner)
        level.uses[item.id] = inner.frame
        nodes = [node for each in inner.items for node in inner.nodes.get(each.id, ())]
        level.nodes[item.id] = nodes
        level.last[item.id] = tuple(
            last for each in _last(inner.items) for last in inner.last[each.id]
        )

    def _use_frame(self, item: Item, template: Template, level: _Level) -> Frame | None:
        """The frame of a use, or None if it cannot be expanded."""
        around = level.around
        if template.name in around.outer:
            chain = " -> ".join((*around.outer, template.name))
            self._problems.add(
                "plan.template-recursion", f"the template uses itself: {chain}", item.source
            )
            return None
        given = item.raw.get("with", {})
        known = len(self._problems.found)
        validator = self._registry.validator(f"inputs:{template.name}")
        checked = Checked(around.document, (*item.path, "with"))
        check_schema(validator, given, checked, self._problems)
        if len(self._problems.found) > known:
            return None
        defaults = {
            name: declared.default
            for name, declared in template.inputs.items()
            if name not in given
        }
        sources = sources_below(around.document, item.path, item.raw)
        outputs = sources_below(template.document, (), {"outputs": template.outputs})
        return Frame(
            use=around.prefix + item.id,
            template=template.name,
            inputs={**defaults, **given},
            given=frozenset(given),
            outputs=template.outputs,
            declared=template.inputs,
            sources={**sources, **outputs},
            parent=level.frame,
        )

    def _static(self, item: Item, level: _Level) -> StaticFields:
        document = level.around.document
        return read_static(item, level.frame, document, level.visible, self._names, self._problems)

    def _needs(self, item: Item, level: _Level) -> tuple[str, ...]:
        if not item.needs:
            return level.around.needs
        ids = (expanded for need in item.needs for expanded in level.last.get(need, ()))
        return tuple(dict.fromkeys(ids))

    def _check_with(self, item: Item, level: _Level, reader: Reader) -> None:
        document, path = level.around.document, (*item.path, "with")

        def place(inner: tuple[str | int, ...]) -> Source:
            return document.source((*path, *inner))

        raw = item.raw.get("with", {})
        check_value_references(raw, level.visible, reader, self._problems, place)

    def _when(self, item: Item, level: _Level, reader: Reader) -> str | None:
        raw = item.raw.get("when")
        if raw is None:
            return None
        text = raw if isinstance(raw, str) else ("true" if raw else "false")
        source = level.around.document.source((*item.path, "when"))
        check_condition(text, level.visible, reader, self._problems, source)
        return text

    def _check_outputs(self, template: Template, inner: _Level) -> None:
        def place(inner_path: tuple[str | int, ...]) -> Source:
            return template.document.source(("outputs", *inner_path))

        reader = Reader(f"outputs of {template.name}")
        check_value_references(template.outputs, inner.visible, reader, self._problems, place)


def _last(items: Sequence[Item]) -> list[Item]:
    needed = {need for item in items for need in item.needs}
    return [item for item in items if item.id not in needed]
