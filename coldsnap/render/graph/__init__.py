"""A plan's DAG as text, Mermaid, DOT or SVG."""

from __future__ import annotations

from coldsnap.render.graph.model import Drawing, drawing_of
from coldsnap.render.graph.svg import svg
from coldsnap.render.graph.text import dot, mermaid, text

__all__ = ["Drawing", "dot", "drawing_of", "mermaid", "svg", "text"]
