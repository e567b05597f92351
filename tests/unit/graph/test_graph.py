from __future__ import annotations

import shutil
import subprocess
import xml.etree.ElementTree as ET
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coldsnap.artifact.errors import ColdSnapError
from coldsnap.graph.dag import StepGraph
from coldsnap.graph.pictures import FORMATS, render
from coldsnap.graph.slices import Slice, select, sliced
from coldsnap.graph.text import render_text
from coldsnap.plan.model import Plan, StepNode


def plan(**needs):
    """A plan of steps; ``__`` stands for a dot."""
    nodes = tuple(
        StepNode(
            id=name.replace("__", "."),
            type="demo.note",
            needs=tuple(each.replace("__", ".") for each in wanted.split()),
            use=name.split("__")[0] if "__" in name else None,
        )
        for name, wanted in needs.items()
    )
    return Plan(
        path="p.yaml", name="p", description="", document_sha256="", variables={}, engine=None,
        driver="auto", model=None, topology=None, store="", steps=nodes, request={},
        request_sha256="",
    )  # fmt: skip


CAPTURE = plan(
    setup="",
    c__stage="setup",
    c__probe="setup",
    c__launch="c__stage c__probe",
    c__accept="c__launch",
    publish="c__accept c__probe",
    note="setup",
)


def graph(of=CAPTURE):
    return StepGraph.of(of)


def test_the_order_puts_needs_first_and_keeps_the_document_s():
    assert graph().order == (
        "setup", "c.stage", "c.probe", "c.launch", "c.accept", "publish", "note",
    )  # fmt: skip
    assert graph(plan(b="a", a="", c="")).order == ("a", "b", "c")


def test_layers():
    assert graph().layers == (
        ("setup",),
        ("c.stage", "c.probe", "note"),
        ("c.launch",),
        ("c.accept",),
        ("publish",),
    )


def test_needs_that_follow_from_others_are_left_out_of_drawings():
    assert graph().reduced["publish"] == ("c.accept",)
    assert graph().by_id["publish"].needs == ("c.accept", "c.probe")


def test_a_cycle_is_named():
    with pytest.raises(ColdSnapError) as caught:
        graph(plan(x="", a="c", b="a", c="b"))
    assert caught.value.code == "plan.cycle"
    assert caught.value.message in {
        f"steps need each other: {cycle}"
        for cycle in ("a -> c -> b -> a", "b -> a -> c -> b", "c -> b -> a -> c")
    }
    with pytest.raises(ColdSnapError) as caught:
        graph(plan(a="none"))
    assert caught.value.code == "plan.missing-need"


@pytest.mark.parametrize(
    ("chosen", "expected"),
    [
        (Slice(), "setup c.stage c.probe c.launch c.accept publish note"),
        (Slice(only=["c.launch"]), "c.launch"),
        (Slice(only=["c"]), "c.stage c.probe c.launch c.accept"),
        (Slice(only=["note", "publish"]), "publish note"),
        (Slice(start=["c.launch"]), "c.launch c.accept publish"),
        (Slice(start=["c"]), "c.stage c.probe c.launch c.accept publish"),
        (Slice(until=["c.launch"]), "setup c.stage c.probe c.launch"),
        (Slice(until=["c"]), "setup c.stage c.probe c.launch c.accept"),
        (Slice(until=["note"]), "setup note"),
        (Slice(start=["c.probe"], until=["c.launch"]), "c.probe c.launch"),
        (Slice(start=["c"], until=["c"]), "c.stage c.probe c.launch c.accept"),
        (Slice(start=["c.probe", "note"]), "c.probe c.launch c.accept publish note"),
    ],
)
def test_slices(chosen, expected):
    assert " ".join(select(CAPTURE, graph(), chosen)) == expected
    assert {node.id for node in sliced(CAPTURE, chosen).steps} == set(expected.split())


def test_a_slice_keeps_the_order_through_what_it_leaves_out():
    small = sliced(CAPTURE, Slice(only=["setup", "c.accept", "publish"]))
    assert {node.id: node.needs for node in small.steps} == {
        "setup": (),
        "c.accept": ("setup",),
        "publish": ("c.accept", "setup"),
    }


def test_nested_uses_stand_for_their_steps():
    nested = plan(a__b__x="", a__b__y="a__b__x", a__z="a__b__y")
    assert select(nested, graph(nested), Slice(only=["a.b"])) == ("a.b.x", "a.b.y")
    assert select(nested, graph(nested), Slice(only=["a"])) == ("a.b.x", "a.b.y", "a.z")


def test_unknown_names_in_a_slice_are_all_reported():
    with pytest.raises(ColdSnapError) as caught:
        select(CAPTURE, graph(), Slice(only=["c.lanch"], until=["publsh"]))
    errors = [caught.value, *caught.value.more]
    assert [(error.code, error.message, error.remedy) for error in errors] == [
        (
            "plan.unknown-step",
            '--only "c.lanch": there is no such step in p.yaml',
            'did you mean "c.launch"?',
        ),
        (
            "plan.unknown-step",
            '--until "publsh": there is no such step in p.yaml',
            'did you mean "publish"?',
        ),
    ]


def test_a_slice_with_nothing_in_it_is_an_error():
    with pytest.raises(ColdSnapError) as caught:
        select(CAPTURE, graph(), Slice(start=["publish"], until=["setup"]))
    assert caught.value.code == "plan.empty-slice"


def test_text():
    assert render_text(graph()) == (
        "●      setup     demo.note\n"
        "├─┬─┐\n"
        "● │ │  c.stage   demo.note\n"
        "│ ● │  c.probe   demo.note\n"
        "●─┘ │  c.launch  demo.note\n"
        "●   │  c.accept  demo.note\n"
        "●   │  publish   demo.note\n"
        "    ●  note      demo.note"
    )
    assert render_text(graph(), ascii_only=True).isascii()


def test_text_of_crossing_lines():
    crossing = plan(a="", b="", c="a b", d="a", e="c d", f="b")
    assert render_text(graph(crossing)) == (
        "●        a  demo.note\n"
        "├─┐\n"
        "│ │ ●    b  demo.note\n"
        "│ │ ├─┐\n"
        "●─┼─┘ │  c  demo.note\n"
        "│ ●   │  d  demo.note\n"
        "●─┘   │  e  demo.note\n"
        "      ●  f  demo.note"
    )


def test_mermaid_has_a_box_per_use_and_safe_labels():
    text = render(graph(), "mermaid")
    assert text.splitlines()[0] == "flowchart TD"
    assert '  subgraph u_s1["c"]' in text
    assert '    s3["launch<br/>demo.note"]' in text
    assert "  s4 --> s5" in text
    assert "s2 --> s5" not in text
    odd = plan(a="")
    odd = replace(odd, steps=(replace(odd.steps[0], type='x"]<script>|'),))
    assert "<script>" not in render(graph(odd), "mermaid")


def test_dot_is_read_by_graphviz_where_there_is_one():
    text = render(graph(), "dot")
    assert '"c.stage" -> "c.launch";' in text
    if shutil.which("dot") is None:
        pytest.skip("graphviz is not installed; only the text was checked")
    subprocess.run(["dot", "-Tplain"], input=text, text=True, check=True, capture_output=True)


def test_svg_is_well_formed_and_boxes_do_not_overlap():
    root = ET.fromstring(render(graph(), "svg"))
    space = "{http://www.w3.org/2000/svg}"
    boxes = [
        tuple(float(box.get(key)) for key in ("x", "y", "width", "height"))
        for box in root.iter(f"{space}rect")
        if box.get("class") == "b"
    ]
    assert len(boxes) == 7
    for index, (x, y, width, height) in enumerate(boxes):
        assert x >= 0
        assert x + width <= float(root.get("width"))
        assert y + height <= float(root.get("height"))
        for x2, y2, width2, _ in boxes[:index]:
            assert y != y2 or x + width <= x2 or x2 + width2 <= x
    assert {text.text for text in root.iter(f"{space}text")} >= {"setup", "c.launch", "demo.note"}
    edges = [path for path in root.iter(f"{space}path") if path.get("class") == "e"]
    assert len(edges) == sum(len(needs) for needs in graph().reduced.values())


def test_an_unknown_format():
    with pytest.raises(ColdSnapError) as caught:
        render(graph(), "mermade")
    assert caught.value.remedy == 'did you mean "mermaid"?'


@st.composite
def _plans(draw):
    count = draw(st.integers(1, 12))
    return plan(
        **{
            f"s{i}": " ".join(f"s{j}" for j in range(i) if draw(st.integers(0, 3)) == 0)
            for i in range(count)
        }
    )


@settings(max_examples=150, deadline=3000)
@given(_plans())
def test_any_plan_can_be_drawn_and_ordered(any_plan):
    dag = graph(any_plan)
    position = {step_id: index for index, step_id in enumerate(dag.order)}
    for node in any_plan.steps:
        assert all(position[need] < position[node.id] for need in node.needs)
    lines = render_text(dag).splitlines()
    drawn = [line.split()[-2] for line in lines if line.endswith("demo.note")]
    assert drawn == list(dag.order)
    for form in FORMATS:
        assert all(node.id in render(dag, form) for node in any_plan.steps)
    ET.fromstring(render(dag, "svg"))
