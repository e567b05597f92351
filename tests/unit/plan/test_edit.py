from __future__ import annotations

import pytest

from coldsnap.artifact.errors import ColdSnapError
from coldsnap.plan.document import parse_document
from coldsnap.plan.edit import edit_file, edited

PLAN = """\
# yaml-language-server: $schema=../../schemas/plan.schema.json
coldsnap: plan/v1
name: x   # the name

# What is served.
model: {id: Qwen/Qwen3-8B, revision: "{{ vars.revision }}", source: hf}  # pinned
units:
  - id: u0
    image: 'vllm:latest'      # tag
    command: [vllm, serve, "{{ model.path }}", --max-model-len, "8192"]
steps:
  - id: capture
    uses: vllm.capture            # the whole DAG
    with: {accept: {prompt: "The capital of France is", tokens: 24}}
  # and then
  - id: publish
    type: core.publish
    needs: [capture]
"""


def document(text):
    return parse_document(text.encode(), "p.yaml")


def test_only_the_value_changes():
    text = edited(
        document(PLAN),
        {("units", 0, "image"): "vllm@sha256:ab", ("model", "revision"): "9c1f"},
    )
    assert text == PLAN.replace("'vllm:latest'", "'vllm@sha256:ab'").replace(
        '"{{ vars.revision }}"', '"9c1f"'
    )


def test_a_list_that_starts_under_its_key_stays_there():
    flat = "a: 1\nsteps:\n- id: x  # note\n  type: y\n- id: z\n"
    assert edited(document(flat), {("a",): 2}) == flat.replace("a: 1", "a: 2")


def test_nothing_to_change_changes_nothing():
    assert edited(document(PLAN), {("name",): "x"}) == PLAN
    assert edited(document(PLAN), {}) == PLAN


def test_a_new_key_is_added_where_the_map_is():
    for text, path, expected in (
        ("model: {id: m}  # x\n", ("model", "revision"), "model: {id: m, revision: abc}  # x\n"),
        ("m:\n  i: m # x\nz: 1\n", ("m", "r"), "m:\n  i: m # x\n  r: abc\nz: 1\n"),
        ("- i: m\n  b:\n   - 1\n", (0, "r"), "- i: m\n  r: abc\n  b:\n   - 1\n"),
    ):  # fmt: skip
        assert edited(document(text), {path: "abc"}) == expected


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("a: &x 1\nb: *x\n", ("a",)),
        ("a: &x 1\nb: *x\n", ("b",)),
        ("a: |\n  x\n", ("a",)),
        ("a: x\n  y\n", ("a",)),
        ("a:\nb: 1\n", ("a",)),
        ("a: {}\n", ("a", "b")),
        ("a: &x {k: 1}\nb: *x\n", ("b", "k")),
    ],
)
def test_what_cannot_be_replaced_alone_is_refused(text, path):
    with pytest.raises(ColdSnapError) as caught:
        edited(document(text), {path: "new"})
    assert caught.value.code == "plan.not-editable"


@pytest.mark.parametrize(
    "value",
    [
        "",
        "a: b",
        "a #b",
        "- x",
        "{{ x }}",
        "it's",
        'say "x"',
        "no",
        "true",
        "1.10",
        "é\n",
        None,
        3,
        1.5,
        False,
        "null",
        "a:",
        "@x",
        "x,y",
    ],
)
@pytest.mark.parametrize(
    "text", ["a: x  # y\n", "a: 'x'\n", 'a: "x"\n', "a: {b: x}\n", "a: [x, y]\n"]
)
def test_any_value_is_written_so_that_it_is_read_back(text, value):  # fmt: skip
    path = ("a", "b") if "{" in text else ("a", 0) if "[" in text else ("a",)
    assert document(edited(document(text), {path: value})).node(path).value == value


@pytest.mark.parametrize(
    "path",
    [("units", 3, "image"), ("none", "a"), ("model",), ("name", "x"), ("units", 0, "command")],
)
def test_a_path_that_leads_nowhere_is_refused(path):
    with pytest.raises(ColdSnapError) as caught:
        edited(document(PLAN), {path: "x"})
    assert caught.value.code == "plan.no-such-place"


def test_a_file_is_replaced_with_its_mode_kept(tmp_path):
    file = tmp_path / "p.yaml"
    file.write_text(PLAN)
    file.chmod(0o640)
    assert edit_file(file, {("name",): "y"})
    assert file.read_text() == PLAN.replace("name: x ", "name: y ")
    assert file.stat().st_mode & 0o777 == 0o640
    assert not edit_file(file, {("name",): "y"})
    assert [path.name for path in tmp_path.iterdir()] == ["p.yaml"]


def test_text_that_looks_like_a_number_is_quoted():
    text = edited(document("a: x\n"), {("a",): "1.10"})
    assert document(text).data == {"a": "1.10"}
