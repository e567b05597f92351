"""The DAG as lanes, Mermaid, DOT and SVG."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from coldsnap.plan.model import Plan, StepNode
from coldsnap.render.graph import dot, drawing_of, mermaid, svg, text

GOLDEN = Path(__file__).parent / "golden"


def step(name: str, *needs: str, use: str | None = None, when: str | None = None) -> StepNode:
    kind = f"core.{name.rpartition('.')[2]}"
    return StepNode(name, kind, needs=needs, use=use, when=when)


def plan(*steps: StepNode) -> Plan:
    return Plan("p.yaml", "demo", "", "s", {}, None, "criu", None, None, "", steps, {}, "s")


DEMO = plan(
    step("probe"),
    step("c.stage", "probe", use="c"),
    step("c.pull", "probe", use="c"),
    step("c.check", "probe", "c.pull", use="c"),
    step("c.launch", "c.stage", "c.pull", "c.check", use="c"),
    step("other"),
    step("publish", "c.launch", "other", "probe", when="vars.x"),
)


def test_needs_that_follow_from_others_are_not_drawn() -> None:
    nodes = {node.id: node for node in drawing_of(DEMO).nodes}
    assert nodes["c.check"].needs == ("c.pull",)
    assert nodes["publish"].needs == ("c.launch", "other")
    assert nodes["publish"].layer == 4


@pytest.mark.parametrize(("draw", "name"), [(text, "txt"), (mermaid, "mmd"), (dot, "dot")])
def test_drawing_is_golden(draw, name: str, golden) -> None:
    golden(GOLDEN / f"graph.{name}", draw(drawing_of(DEMO)) + "\n")


def test_order_is_one_in_which_it_could_run() -> None:
    late_first = plan(step("b", "a"), step("a"))
    assert [node.id for node in drawing_of(late_first).nodes] == ["a", "b"]


def test_lanes_of_many_fork_and_join() -> None:
    fan = [step(f"m{n}", "a") for n in range(4)]
    shown = text(drawing_of(plan(step("a"), *fan, step("z", *(s.id for s in fan)))))
    assert shown.splitlines()[1] == "├─┬─┬─╮"
    assert shown.splitlines()[-2] == "├─┴─┴─╯"


def test_svg_is_well_formed_and_asks_for_nothing() -> None:
    drawing = drawing_of(plan(step("a&<b>"), step("z", "a&<b>")))
    root = ET.fromstring(svg(drawing))
    names = [element.text for element in root.iter("{http://www.w3.org/2000/svg}text")]
    assert "a&<b>" in names
    assert "href" not in svg(drawing)


def test_svg_boxes_do_not_overlap() -> None:
    root = ET.fromstring(svg(drawing_of(DEMO)))
    boxes = [
        tuple(float(rect.get(side)) for side in ("x", "y", "width", "height"))
        for rect in root.iter("{http://www.w3.org/2000/svg}rect")
    ]
    assert len(boxes) == 7
    for i, (x, y, w, h) in enumerate(boxes):
        for x2, y2, w2, h2 in boxes[i + 1 :]:
            assert x + w <= x2 or x2 + w2 <= x or y + h <= y2 or y2 + h2 <= y


def test_names_cannot_break_out_of_their_language() -> None:
    drawing = drawing_of(plan(step('a"]; x')))
    assert '"a\\"]; x"' in dot(drawing)
    assert '["a#quot;]; x<br/>' in mermaid(drawing)
