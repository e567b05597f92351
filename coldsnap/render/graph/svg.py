"""The DAG as a picture: layers from top to bottom, boxes, curves. Readable on light and dark.

An edge that passes layers gets a place of its own in each of them, so that it never runs behind
a box; the order within a layer follows the middle of what each item hangs from.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from markupsafe import escape

from coldsnap.render.palette import clean

if TYPE_CHECKING:
    from coldsnap.render.graph.model import Drawing, Node

_HEIGHT: Final = 46
_GAP_X: Final = 24
_GAP_Y: Final = 42
_MARGIN: Final = 16
_CHAR: Final = 7.9
"""Width of a character of the label's font, roughly."""

_STYLE: Final = (
    "text{font:13px ui-monospace,monospace;fill:#16202c}.type{fill:#5b6878;font-size:12px}"
    "rect{fill:#fff;stroke:#2563c9}.when{stroke-dasharray:5 3}path{fill:none;stroke:#8a95a3}"
    "@media(prefers-color-scheme:dark){text{fill:#e6ebf1}.type{fill:#98a5b4}"
    "rect{fill:#171e26;stroke:#6ba3ff}path{stroke:#75818f}}"
)


@dataclass
class _Item:
    """A box, or (without a node) the place where an edge passes a layer."""

    layer: int
    node: Node | None = None
    parents: list[_Item] = field(default_factory=list)
    x: float = 0.0

    @property
    def width(self) -> float:
        if self.node is None:
            return 8.0
        return max(len(self.node.id), len(self.node.type)) * _CHAR + 24

    @property
    def middle(self) -> float:
        return self.x + self.width / 2

    @property
    def y(self) -> float:
        return _MARGIN + self.layer * (_HEIGHT + _GAP_Y)

    @property
    def wanted(self) -> float:
        """Where it would like its middle."""
        if not self.parents:
            return self.middle
        return sum(parent.middle for parent in self.parents) / len(self.parents)


def svg(drawing: Drawing) -> str:
    """One standing SVG document without outside references."""
    layers = _layers(drawing)
    width = _place(layers)
    height = len(layers) * (_HEIGHT + _GAP_Y) - _GAP_Y + 2 * _MARGIN
    every = [item for layer in layers for item in layer]
    edges = [_edge(parent, item) for item in every for parent in item.parents]
    shapes = [_shape(item, item.node) for item in every if item.node is not None]
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
        f'viewBox="0 0 {width:.0f} {height:.0f}" role="img" '
        f'aria-label="{escape(clean(drawing.title))}">'
    )
    return "\n".join([head, f"<style>{_STYLE}</style>", *edges, *shapes, "</svg>"])


def _layers(drawing: Drawing) -> list[list[_Item]]:
    depth = max((node.layer for node in drawing.nodes), default=-1) + 1
    layers: list[list[_Item]] = [[] for _ in range(depth)]
    items: dict[str, _Item] = {}
    for node in drawing.nodes:
        item = items[node.id] = _Item(node.layer, node)
        layers[node.layer].append(item)
        for need in node.needs:
            above = items[need]
            for layer in range(above.layer + 1, node.layer):
                passing = _Item(layer, parents=[above])
                layers[layer].append(passing)
                above = passing
            item.parents.append(above)
    return layers


def _place(layers: list[list[_Item]]) -> float:
    """Set the x of all items; the width of the picture."""
    widths = [sum(i.width for i in layer) + _GAP_X * (len(layer) - 1) for layer in layers]
    full = max(widths, default=0.0)
    for layer, width in zip(layers, widths, strict=True):
        layer.sort(key=lambda item: item.wanted)
        x = _MARGIN + (full - width) / 2
        for item in layer:
            item.x = x
            x += item.width + _GAP_X
    return full + 2 * _MARGIN


def _shape(item: _Item, node: Node) -> str:
    when = ' class="when"' if node.conditional else ""
    return (
        f'<rect{when} x="{item.x:.1f}" y="{item.y:.1f}" width="{item.width:.1f}" '
        f'height="{_HEIGHT}" rx="6"/><text x="{item.middle:.1f}" y="{item.y + 20:.1f}" '
        f'text-anchor="middle">{escape(clean(node.id))}</text><text class="type" '
        f'x="{item.middle:.1f}" y="{item.y + 36:.1f}" text-anchor="middle">'
        f"{escape(clean(node.type))}</text>"
    )


def _edge(start: _Item, end: _Item) -> str:
    # An edge runs straight through the place it has in a layer that it passes.
    top = start.y + _HEIGHT
    lead = f"M{start.middle:.1f} {start.y:.1f} V{top:.1f}" if start.node is None else ""
    bend = (end.y - top) / 2
    return (
        f'<path d="{lead}M{start.middle:.1f} {top:.1f} C{start.middle:.1f} {top + bend:.1f} '
        f'{end.middle:.1f} {end.y - bend:.1f} {end.middle:.1f} {end.y:.1f}"/>'
    )
