from __future__ import annotations

import enum
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coldsnap.artifact import decode as decoding
from coldsnap.artifact.capabilities import Capabilities, EngineCapability, describe_capabilities
from coldsnap.artifact.decode import Record, decode, encode, parse, recheck
from coldsnap.artifact.descriptor import Descriptor, complete
from coldsnap.artifact.errors import ColdSnapError
from coldsnap.artifact.events import TimingEvent, read_events
from coldsnap.artifact.oci.media import Manifest
from coldsnap.artifact.pack_index import PackIndex, read_index
from coldsnap.artifact.profile import HostProfile
from coldsnap.artifact.receipt import Receipt
from coldsnap.artifact.request import Request, resolve_request
from coldsnap.artifact.rules import AbsolutePath, Bytes, Digest, Id, Line, RelativePath
from coldsnap.artifact.timing import Timing
from coldsnap.artifact.tree import Listing
from coldsnap.artifact.validation import ValidationRecord, ValidationResult

DOCUMENTS = (
    Descriptor, Request, Receipt, Timing, TimingEvent, PackIndex, HostProfile, Capabilities,
    Listing, ValidationRecord, ValidationResult, Manifest,
)  # fmt: skip


class Colour(enum.Enum):
    RED = "red"


@dataclass(frozen=True)
class Leaf(Record):
    path: RelativePath
    bytes: Bytes = 0


@dataclass(frozen=True)
class Sample(Record):
    id: Id
    leaves: tuple[Leaf, ...] = ()
    named: Mapping[Id, Leaf] = field(default_factory=dict)
    digest: Digest | None = None
    place: AbsolutePath = "/"
    ratio: float = 0.5
    kind: Literal["a", "b", 1] = "a"
    colour: Colour = Colour.RED
    extra: Any = None
    note: Line = ""

    def problems(self) -> Iterator[tuple[str, str]]:
        if self.note == "bad":
            yield "/note", "is bad"


def refused(value: Any, kind: type[Record] = Sample) -> str:
    with pytest.raises(ColdSnapError) as caught:
        decode(kind, value, what="sample")
    assert caught.value.code == "artifact.invalid"
    return caught.value.message


def test_a_good_document_survives_both_ways() -> None:
    value = {
        "id": "x",
        "leaves": [{"path": "a/b", "bytes": 3}],
        "named": {"k": {"path": "c", "bytes": 0}},
        "digest": "sha256:" + "0" * 64,
        "place": "/a b/ü",
        "ratio": 1,
        "kind": 1,
        "colour": "red",
        "extra": [1, {"x": None}],
        "note": "é",
    }
    record = decode(Sample, value, what="sample")
    assert record.leaves[0].bytes == 3
    assert isinstance(record.ratio, float)
    assert encode(record) == {**value, "ratio": 1.0}
    assert recheck(record, what="sample") == record


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({}, "/: field 'id' is missing"),
        ([], "/: must be an object, is a list"),
        ({"id": 1}, "/id: must be text, is an integer"),
        ({"id": "x", "ide": 1}, "unknown field 'ide'; did you mean 'id'?"),
        ({"id": "-x"}, "/id: '-x' is not an id"),
        ({"id": "x", "leaves": [{"path": "a"}, {"path": 3}]}, "/leaves/1/path: must be text"),
        ({"id": "x", "leaves": {"0": {}}}, "/leaves: must be a list, is an object"),
        ({"id": "x", "named": {"a b": {"path": "a"}}}, "/named/a b: 'a b' is not an id"),
        ({"id": "x", "named": {"k": {}}}, "/named/k: field 'path' is missing"),
        ({"id": "x", "leaves": [{"path": "a", "bytes": True}]}, "must be an integer, is true"),
        ({"id": "x", "leaves": [{"path": "a", "bytes": -1}]}, "must be at least 0, is -1"),
        ({"id": "x", "leaves": [{"path": "a", "bytes": 1.0}]}, "must be an integer, is a number"),
        ({"id": "x", "leaves": [{"path": "a", "bytes": 10**400}]}, "a number of 1329 bits"),
        ({"id": "x", "digest": "sha256:" + "A" * 64}, "/digest: "),
        ({"id": "x", "ratio": "1"}, "/ratio: must be a number, is text"),
        ({"id": "x", "ratio": 10**400}, "/ratio: must be a finite number"),
        ({"id": "x", "kind": True}, "/kind: must be one of 'a', 'b', 1, is True"),
        ({"id": "x", "colour": "blue"}, "/colour: must be one of 'red'"),
        ({"id": "x", "note": "a\nb"}, "/note: must not hold control characters"),
        ({"id": "x", "note": "\ud800"}, "/note: holds half of a surrogate pair"),
        ({"id": "x", "note": "bad"}, "/note: is bad"),
        ({"id": "x", "extra": [{"y": float("inf")}]}, "/extra: must be a finite number"),
    ],
)
def test_each_refusal_names_the_place_and_the_reason(value: Any, message: str) -> None:
    assert message in refused(value)


@pytest.mark.parametrize(
    "path", ["", "/a", "a/", "a//b", ".", "..", "a/../b", "a/.", "a\0b", "a\nb", "x" * 1025]
)
def test_paths_that_could_lead_out_are_refused(path: str) -> None:
    assert "/path: " in refused({"path": path}, Leaf)


@pytest.mark.parametrize("path", ["a", ".a", "..a", "a..", "a/..b/c", "ü/ x"])
def test_odd_but_clean_paths_are_taken(path: str) -> None:
    assert decode(Leaf, {"path": path}, what="leaf").path == path


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"\xff", "not valid JSON"),
        (b"{", "not valid JSON"),
        (b"{} x", "not valid JSON"),
        (b'{"a": 1, "a": 2}', "duplicate key 'a'"),
        (b"[NaN]", "NaN is not JSON"),
        (b"[" * 200_000, "nested too deeply"),
        (b"1" + b"0" * 5000, "not valid JSON"),
        (b" " * 2_000_000, "larger than the 1000000 bytes"),
    ],
)
def test_text_that_is_no_json_is_refused(data: bytes, message: str) -> None:
    with pytest.raises(ColdSnapError) as caught:
        parse(data, limit=1_000_000, what="text")
    assert message in caught.value.message


NAMES = st.text(max_size=8)
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8)
    | st.sampled_from(["sha256:" + "a" * 64, "x", "u0", "criu", "ok", 1, 4, 9]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=4),
    max_leaves=12,
)  # fmt: skip


def field_values(kind: type[Record]) -> st.SearchStrategy[Any]:
    """Objects with the right names and any values: what gets past the first check."""
    names = st.sampled_from([f.name for f in kind.__dataclass_fields__.values()])
    return st.dictionaries(names, ANYTHING, max_size=12)


@settings(max_examples=60)
@given(st.data())
def test_nothing_but_coldsnap_errors_leaves_the_decoder(data: st.DataObject) -> None:
    for kind in DOCUMENTS:
        value = data.draw(ANYTHING | field_values(kind))
        try:
            decode(kind, value, what="any")
        except ColdSnapError:
            continue


@settings(max_examples=100)
@given(ANYTHING | field_values(Descriptor), ANYTHING | field_values(Request))
def test_completion_and_defaults_raise_coldsnap_errors_only(draft: Any, request: Any) -> None:
    for read, value in ((complete, draft), (resolve_request, request)):
        try:
            read(value if isinstance(value, dict) or read is resolve_request else {})
        except ColdSnapError:
            continue


@settings(max_examples=100)
@given(st.binary(max_size=200))
def test_bytes_raise_coldsnap_errors_only(data: bytes) -> None:
    for read in (lambda: read_index(data), lambda: list(read_events([data]))):
        with pytest.raises(ColdSnapError):
            read()


@settings(max_examples=200, deadline=None)
@given(data=st.data())
def test_a_valid_descriptor_with_one_change_is_refused_or_valid(
    data: st.DataObject, valid_descriptor: dict[str, Any]
) -> None:
    value = json.loads(json.dumps(valid_descriptor))
    node: Any = value
    while isinstance(node, (dict, list)) and node:
        keys = list(node) if isinstance(node, dict) else range(len(node))
        key = data.draw(st.sampled_from(list(keys)))
        if not isinstance(node[key], (dict, list)) or not node[key] or data.draw(st.booleans()):
            node[key] = data.draw(ANYTHING)
            break
        node = node[key]
    try:
        record = decode(Descriptor, value, what="descriptor")
    except ColdSnapError:
        return
    assert recheck(record, what="descriptor") == record


def test_the_capability_document_is_valid() -> None:
    document = describe_capabilities([EngineCapability("reference", "p", "1", ("capture",))])
    assert recheck(document, what="capabilities") == document
    assert decoding.encode(document)["protocols"]["artifact_format"] == 9
