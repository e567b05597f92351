"""A plan's DAG as a self-contained SVG picture: no script, no font, no link."""

from __future__ import annotations

from html import escape
from itertools import pairwise

from coldsnap.graph.dag import StepGraph
from coldsnap.graph.layout import Layout, lay_out
from coldsnap.plan.model import StepNode

_CHAR = 7.3
"""Width of a character of the 12 px monospace text, generously."""
_BOX, _STEP, _PAD, _GAP, _BEND = 40.0, 84.0, 12.0, 18.0, 10.0
_STYLE = (
    "text{font:12px ui-monospace,monospace;fill:#1b1f24}.t{fill:#57606a}"
    ".b{fill:#f6f8fa;stroke:#8c959f}.e{fill:none;stroke:#8c959f;stroke-width:1.3}"
    "@media(prefers-color-scheme:dark){text{fill:#e6edf3}.t{fill:#8d96a0}"
    ".b{fill:#161b22;stroke:#6e7681}.e{stroke:#6e7681}}"
)
_ARROW = (
    '<defs><marker id="a" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7"'
    ' orient="auto"><path d="M0,0L8,4L0,8z" fill="#8c959f"/></marker></defs>'
)
_COLOURS = ("#0969da", "#1a7f37", "#9a6700", "#8250df", "#bc4c00", "#bf3989")
"""Edge of a box by the template use it came from."""


def render_svg(graph: StepGraph, title: str = "") -> str:
    """The picture, top down; needs that follow from others are not drawn."""
    layout = lay_out(graph, lambda step_id: _width(graph.by_id[step_id]), _GAP, _BEND)
    width = max((layout.x[n.id] + _width(n) / 2 for n in graph.nodes), default=0.0) + 2 * _PAD
    height = max(len(layout.rows) * _STEP - (_STEP - _BOX), 0.0) + 2 * _PAD
    row_of = {cell: row for row, cells in enumerate(layout.rows) for cell in cells}
    uses = [use for use in dict.fromkeys(node.use for node in graph.nodes) if use]
    size = f'width="{width:.0f}" height="{height:.0f}" viewBox="0 0 {width:.0f} {height:.0f}"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">',
        f"<title>{escape(title or 'plan')}</title><style>{_STYLE}</style>",
        _ARROW,
        *(_edge(chain, layout, row_of) for chain in layout.edges),
    ]
    for node in graph.nodes:
        colour = _COLOURS[uses.index(node.use) % len(_COLOURS)] if node.use else ""
        parts.append(_box(node, layout.x[node.id] + _PAD, row_of[node.id] * _STEP + _PAD, colour))
    return "\n".join((*parts, "</svg>")) + "\n"


def _width(node: StepNode) -> float:
    return max(len(node.id), len(node.type)) * _CHAR + 20


def _box(node: StepNode, centre: float, top: float, colour: str) -> str:
    width = _width(node)
    left = centre - width / 2
    about = f"{node.id} ({node.type})" + (f", when {node.when}" if node.when else "")
    stripe = (
        f'<rect x="{left:.1f}" y="{top:.1f}" width="4" height="{_BOX}" fill="{colour}"/>'
        if colour
        else ""
    )
    return (
        f"<g><title>{escape(about)}</title>"
        f'<rect class="b" x="{left:.1f}" y="{top:.1f}" width="{width:.1f}" height="{_BOX}" rx="4"/>'
        f"{stripe}"
        f'<text x="{centre:.1f}" y="{top + 17:.1f}" text-anchor="middle">{escape(node.id)}</text>'
        f'<text class="t" x="{centre:.1f}" y="{top + 32:.1f}" text-anchor="middle">'
        f"{escape(node.type)}</text></g>"
    )


def _edge(chain: tuple[str, ...], layout: Layout, row_of: dict[str, int]) -> str:
    """A curve from the bottom of a box through the bends to the top of another."""
    points: list[tuple[float, float]] = []
    for cell in chain:
        x, top = layout.x[cell] + _PAD, row_of[cell] * _STEP + _PAD
        if cell in layout.bends:
            points += [(x, top), (x, top + _BOX)]
        else:
            points.append((x, top + (_BOX if not points else 0)))
    path = f"M{points[0][0]:.1f},{points[0][1]:.1f}"
    for (x0, y0), (x1, y1) in pairwise(points):
        middle = (y0 + y1) / 2
        path += f"C{x0:.1f},{middle:.1f} {x1:.1f},{middle:.1f} {x1:.1f},{y1:.1f}"
    return f'<path class="e" d="{path}" marker-end="url(#a)"/>'
