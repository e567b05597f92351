"""The forms in which a DAG can be shown."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from coldsnap.artifact.errors import ColdSnapError
from coldsnap.graph.dag import StepGraph
from coldsnap.graph.dot import render_dot
from coldsnap.graph.mermaid import render_mermaid
from coldsnap.graph.svg import render_svg
from coldsnap.graph.text import render_text
from coldsnap.plan.problems import hint, shown

FORMATS: Mapping[str, Callable[[StepGraph], str]] = {
    "text": render_text,
    "mermaid": render_mermaid,
    "dot": render_dot,
    "svg": render_svg,
}


def render(graph: StepGraph, form: str) -> str:
    """The graph in one of `FORMATS`.

    Raises:
        ColdSnapError: ``plan.unknown-format``.
    """
    if form not in FORMATS:
        raise ColdSnapError(
            "plan.unknown-format",
            f"a plan cannot be shown as {shown(form)}",
            remedy=hint(form, FORMATS),
        )
    return FORMATS[form](graph)
