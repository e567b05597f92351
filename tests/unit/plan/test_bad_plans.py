from __future__ import annotations

import re
import time
from pathlib import Path

import pytest
from plan_pack import found

from coldsnap.artifact.errors import ColdSnapError
from coldsnap.plan.document import MAX_BYTES, parse_document
from coldsnap.plan.loading import load_plan, load_text
from coldsnap.plan.variables import Given
from coldsnap.render.errors import error_text

NOTHING = Given(environment={})


def _cases():
    head, *cases = re.split(
        r"^=== ", (Path(__file__).parent / "bad_plans.txt").read_text(), flags=re.MULTILINE
    )
    macros = dict(re.findall(r"^(\$[A-Z]+)\n((?:(?!\$).+\n)+)", head, flags=re.MULTILINE))
    for case in cases:
        name, rest = case.split("\n", 1)
        body, _, expected = rest.rpartition("---\n")
        for macro, text in macros.items():
            body = body.replace(f"{macro}\n", text)
        yield pytest.param(body, expected.strip().splitlines(), id=name.replace(" ", "-"))


@pytest.mark.parametrize(("text", "expected"), list(_cases()))
def test_a_mistake_is_named_with_its_place_and_a_hint(registry, text, expected):
    with pytest.raises(ColdSnapError) as caught:
        load_text(text, registry, NOTHING)
    assert found(caught.value) == expected


def test_the_error_shows_the_guilty_line(registry, tmp_path):
    plan = tmp_path / "x.yaml"
    plan.write_text(
        "coldsnap: plan/v1\nname: x\nsteps:\n  - id: probe\n    type: demo.probe\n    timout: 30s\n"
    )
    with pytest.raises(ColdSnapError) as caught:
        load_plan(plan, registry, environment={})
    assert error_text(caught.value).replace(str(tmp_path), "plans") == (
        'error[plan.unknown-field]: unknown field "timout" in step "probe"\n'
        "  plans/x.yaml:6:5\n"
        "    5 |     type: demo.probe\n"
        "  > 6 |     timout: 30s\n"
        "      |     ^^^^^^\n"
        '  hint: did you mean "timeout"?  See: coldsnap step show demo.probe'
    )


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"", "plan.empty 1:1+1 the file holds no document"),
        (b"\xef\xbb\xbf", "plan.empty 1:1+1 the file holds no document"),
        (
            b"name: x\ncoldsnap: \xff\n",
            (
                "plan.not-utf8 2:11+1 x.yaml is not UTF-8: byte 0xff at offset 18"
                " -> convert it: iconv -f LATIN1 -t UTF-8 x.yaml"
            ),
        ),
        (
            "name: x\n".encode("utf-16"),
            (
                "plan.not-utf8 1:1+1 x.yaml is not UTF-8: byte 0xff at offset 0"
                " -> convert it: iconv -f LATIN1 -t UTF-8 x.yaml"
            ),
        ),
        (b"a: \x01\n", "plan.syntax 1:4+1 the character U+0001 is not allowed in YAML"),
        (b"a: \x00\n", "plan.syntax 1:4+1 the character U+0000 is not allowed in YAML"),
        (b"a: " + b"9" * 5000, "plan.syntax 1:4+1 a number of 5000 digits"),
        (b"a: !" + b"x" * 1000, "plan.unknown-tag 1:4+1 this tag is too long -> remove it"),
    ],
)
def test_bytes_that_are_no_document(content, expected):
    with pytest.raises(ColdSnapError) as caught:
        parse_document(content, "x.yaml")
    assert found(caught.value) == [expected]


def test_a_10_mb_plan_is_refused_at_once(registry, tmp_path):
    plan = tmp_path / "big.yaml"
    step = "  - {id: s%07d, type: demo.note}\n"
    plan.write_text(
        "coldsnap: plan/v1\nname: x\nsteps:\n" + "".join(step % i for i in range(310_000))
    )
    assert plan.stat().st_size > 10_000_000
    start = time.process_time()
    with pytest.raises(ColdSnapError) as caught:
        load_plan(plan, registry)
    assert time.process_time() - start < 0.5
    assert caught.value.code == "plan.too-large"
    assert f"a plan may have {MAX_BYTES:,}" in caught.value.message


@pytest.mark.parametrize(
    "text",
    [
        "[" * MAX_BYTES,
        "{" * MAX_BYTES,
        "- " * (MAX_BYTES // 2),
        "[" + "1," * (MAX_BYTES // 2 - 1) + "]",
        '"' + "a\n" * (MAX_BYTES // 2 - 1),
        "a: !" + "x" * (MAX_BYTES - 10),
        "a: &a 1\nb: [" + "*a," * (MAX_BYTES // 3 - 10) + "]",
        "%a\n" * (MAX_BYTES // 3),
        "".join(f"k{i}: 1\n" for i in range(80_000)),
    ],
    ids=["brackets", "braces", "dashes", "list", "quote", "tag", "aliases", "directives", "keys"],
)
def test_a_hostile_megabyte_does_not_hang(registry, text):
    """Seconds of CPU; each took minutes or much memory in an unbounded reader."""
    start = time.process_time()
    with pytest.raises(ColdSnapError):
        load_text(text, registry, NOTHING)
    assert time.process_time() - start < 24


def test_a_directory_and_a_missing_file(registry, tmp_path):
    with pytest.raises(ColdSnapError) as caught:
        load_plan(tmp_path, registry)
    assert caught.value.code == "plan.unreadable"
    with pytest.raises(ColdSnapError) as caught:
        load_plan(tmp_path / "no.yaml", registry)
    assert caught.value.code == "plan.not-found"
    with pytest.raises(ColdSnapError) as caught:
        load_plan("a\0b", registry)
    assert caught.value.code == "plan.unreadable"


def test_at_most_fifty_errors_are_reported(registry):
    steps = "".join(f"  - {{id: s{i}, type: demo.note, timout: 1}}\n" for i in range(200))
    with pytest.raises(ColdSnapError) as caught:
        load_text("coldsnap: plan/v1\nname: x\nsteps:\n" + steps, registry, NOTHING)
    assert len(caught.value.more) == 49


def test_a_very_long_line_is_not_kept(registry):
    text = "coldsnap: plan/v1\nname: x\nsteps: [" + "a" * 100_000 + ", {type: 3}]\n"
    with pytest.raises(ColdSnapError) as caught:
        load_text(text, registry, NOTHING)
    for error in (caught.value, *caught.value.more):
        assert error.source is not None
        assert len(error.source.text) <= 500
        assert len(error.message) < 300
