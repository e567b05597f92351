from __future__ import annotations

import json
import stat
from pathlib import Path
from typing import Any

import pytest

from coldsnap.artifact.canonical import digest
from coldsnap.artifact.drivers import DriverRef
from coldsnap.artifact.errors import ColdSnapError
from coldsnap.artifact.events import MAX_EVENTS, EventWriter, read_events
from coldsnap.artifact.receipt import (
    Receipt,
    ReceiptResult,
    check_destination,
    instant,
    publish_receipt,
    read_receipt,
)
from coldsnap.artifact.timing import Clock, Span, Stopwatch, Timing, accept, merge, read_timing

REQUEST, OTHER = "sha256:" + "a" * 64, "sha256:" + "b" * 64


def envelope(**changes: Any) -> dict[str, Any]:
    span = {"name": "x", "clock": "c", "start_offset_seconds": 0.0, "duration_seconds": 1.0}
    value = {
        "format": 1,
        "clocks": [{"id": "c", "source": "CLOCK_BOOTTIME", "origin_unix_ns": 5}],
        "spans": [{"id": "a", **span}, {"id": "b", "parent": "a", **span}],
    }
    return value | changes


def spans(*changes: dict[str, Any]) -> dict[str, Any]:
    value = envelope()
    value["spans"] = [s | c for s, c in zip(value["spans"], changes, strict=True)]
    return value


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (spans({}, {"id": "a"}), "two spans have one id"),
        (spans({"clock": "d"}, {}), "there is no clock 'd'"),
        (spans({}, {"parent": "z"}), "there is no span 'z'"),
        (spans({"parent": "b"}, {}), "is below the span itself"),
        (spans({"duration_seconds": -1}, {}), "must be at least 0"),
        (spans({"status": "maybe"}, {}), "must be one of"),
        (spans({"name": " x"}, {}), "a trimmed name"),
        (spans({"name": "x" * 129}, {}), "must have 1 to 128"),
        (spans({"attributes": {f"k{i}": "v" for i in range(33)}}, {}), "must have 0 to 32"),
        (spans({"attributes": {"k": "v" * 513}}, {}), "must have 0 to 512"),
        (spans({"attributes": {"k": "a\nb"}}, {}), "control characters"),
        (envelope(clocks=[]), "must have 1 to 128"),
        (envelope(spans=[]), "must have 1 to 2048"),
    ],
)
def test_envelope_rules(value: Any, message: str) -> None:
    with pytest.raises(ColdSnapError) as caught:
        read_timing(json.dumps(value).encode())
    assert caught.value.code == "timing.invalid"
    assert message in caught.value.message
    assert accept(value) is None


def test_the_stopwatch_measures_nested_spans() -> None:
    watch = Stopwatch(unit="u0")
    with watch.span("outer") as notes:
        with pytest.raises(KeyError), watch.span("inner", bytes=7):
            raise KeyError
        notes["note"] = " many\n words "
    timing = watch.timing()
    assert timing is not None
    outer, inner = timing.spans
    assert (outer.name, inner.name, inner.parent) == ("outer", "inner", outer.id)
    assert (outer.status, inner.status) == ("ok", "error")
    assert inner.duration_seconds <= outer.duration_seconds
    assert outer.attributes == {"note": "many words"}
    assert inner.attributes == {"bytes": "7"}
    assert timing.clocks[0].unit == "u0"
    assert Stopwatch().timing() is None


def test_merged_envelopes_keep_their_clocks_apart() -> None:
    one = read_timing(json.dumps(envelope()).encode())
    far = envelope()
    far["clocks"][0]["origin_unix_ns"] = 10**18
    other = read_timing(json.dumps(far).encode())
    merged = merge({"h1": one, "h2": other, "h3": one})
    assert merged is not None
    assert len(merged.clocks) == 2
    assert len(merged.spans) == 6
    assert {span.parent for span in merged.spans if span.parent} == {"h1.a", "h2.a", "h3.a"}
    assert merge({}) is None


def receipt(**changes: Any) -> Receipt:
    values: dict[str, Any] = {
        "operation_id": "op",
        "operation": "restore",
        "state": "succeeded",
        "request_sha256": REQUEST,
        "engine": "vllm",
        "snapshot_driver": DriverRef("criu"),
        "replay_semantics": "reconcile-replace",
        "started_at": instant(1_700_000_000 * 10**9),
        "completed_at": instant(1_700_000_001 * 10**9 + 5),
        "duration_seconds": 1.0,
        "result": ReceiptResult(artifact=OTHER),
    }
    return Receipt(**values | changes)


FAILED: dict[str, Any] = {"state": "failed", "error": "why", "result": None}


def test_instants_are_utc_with_nanoseconds() -> None:
    assert instant(1_700_000_001 * 10**9 + 5) == "2023-11-14T22:13:21.000000005Z"


def test_a_receipt_is_private_and_reads_back(tmp_path: Path) -> None:
    path = tmp_path / "receipt.json"
    made = publish_receipt(path, receipt())
    assert read_receipt(path) == made
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_success_replaces_a_failure_and_is_never_downgraded(tmp_path: Path) -> None:
    path = tmp_path / "receipt.json"
    publish_receipt(path, receipt(**FAILED))
    publish_receipt(path, receipt())
    stands = publish_receipt(path, receipt(**FAILED))
    assert stands.state == "succeeded"
    assert read_receipt(path).state == "succeeded"


def test_a_receipt_of_another_request_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "receipt.json"
    assert check_destination(path, REQUEST) is None
    publish_receipt(path, receipt())
    for action in (
        lambda: check_destination(path, OTHER),
        lambda: publish_receipt(path, receipt(request_sha256=OTHER)),
    ):
        with pytest.raises(ColdSnapError) as caught:
            action()
        assert caught.value.code == "receipt.bound-elsewhere"
    assert read_receipt(path).request_sha256 == REQUEST


def test_a_file_that_is_no_receipt_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("mine")
    with pytest.raises(ColdSnapError) as caught:
        publish_receipt(path, receipt())
    assert caught.value.code == "receipt.invalid"
    assert path.read_text() == "mine"


@pytest.mark.parametrize(
    "changes",
    [
        {"error": "why"},
        {"state": "failed"},
        {"replay_semantics": "convergent"},
        {"replay_semantics": "safe-repeat"},
        {"started_at": "yesterday"},
        {"duration_seconds": -1.0},
    ],
)
def test_receipt_rules(tmp_path: Path, changes: dict[str, Any]) -> None:
    with pytest.raises(ColdSnapError) as caught:
        publish_receipt(tmp_path / "r", receipt(**changes))
    assert caught.value.code == "receipt.invalid"
    assert not (tmp_path / "r").exists()


CLOCK = Clock("c", "monotonic", 5)
OUTER = Span("a", "outer", "c", 0.0, 2.0)
INNER = Span("b", "inner", "c", 0.5, 1.0, parent="a", attributes={"k": "v"})


def stream() -> list[bytes]:
    lines: list[bytes] = []
    writer = EventWriter(lines.append, "op", REQUEST)
    writer.clock(CLOCK)
    writer.span_start(OUTER)
    writer.span_complete(INNER)
    writer.span_complete(OUTER)
    writer.complete("succeeded", Timing((CLOCK,), (OUTER, INNER)))
    return lines


def test_a_stream_reads_back_in_order() -> None:
    events = list(read_events(stream()))
    assert [event.event for event in events] == [
        "stream_start", "clock", "span_start", "span_complete", "span_complete", "stream_complete",
    ]  # fmt: skip
    assert [event.sequence for event in events] == [1, 2, 3, 4, 5, 6]
    expected = digest(Timing((CLOCK,), (OUTER, INNER)).to_json())
    assert events[-1].timing_sha256 == expected


def edited(number: int, **changes: Any) -> list[bytes]:
    lines = stream()
    value = json.loads(lines[number])
    for key, new in changes.items():
        if isinstance(new, dict):
            value[key] |= new
        else:
            value[key] = new
    lines[number] = json.dumps(value).encode()
    return lines


def without(number: int) -> list[bytes]:
    lines = stream()
    del lines[number]
    for place, line in enumerate(lines):
        lines[place] = json.dumps(json.loads(line) | {"sequence": place + 1}).encode()
    return lines


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ([], "has no end"),
        (stream()[:-1], "has no end"),
        (stream()[1:], "sequence must be 1"),
        (without(0), "starts with stream_start"),
        (without(1), "clock 'c' is used before it is told"),
        (without(2), "parent 'a' comes before its child"),
        (without(4), "span 'a' is still open"),
        ([*stream(), stream()[0]], "comes after the end"),
        (edited(2, request_sha256=OTHER), "belongs to another operation"),
        (edited(4, span={"name": "other"}), "completion does not match its start"),
        (edited(2, span={"status": "ok"}), "do not fit span_start"),
        (edited(2, state="failed"), "has no place in span_start"),
        (edited(2, event="surprise"), "must be one of"),
    ],
)
def test_streams_that_break_a_rule_are_refused(lines: list[bytes], message: str) -> None:
    with pytest.raises(ColdSnapError) as caught:
        list(read_events(lines))
    assert caught.value.code == "events.invalid"
    assert message in caught.value.message


def test_an_error_may_be_added_on_completion() -> None:
    lines = edited(4, span={"status": "error", "attributes": {"error": "died"}})
    assert len(list(read_events(lines))) == 6


def test_a_stream_that_cannot_be_written_fails_nothing() -> None:
    def full(_line: bytes) -> None:
        raise OSError

    writer = EventWriter(full, "op", REQUEST)
    writer.clock(CLOCK)
    writer.complete("failed", None)
    assert writer.broken


def test_a_stream_ends_within_its_limit() -> None:
    lines: list[bytes] = []
    writer = EventWriter(lines.append, "op", REQUEST)
    writer.clock(CLOCK)
    for number in range(MAX_EVENTS + 10):
        writer.span_complete(Span(f"s{number}", "x", "c", 0.0, 0.0))
    writer.complete("succeeded", None)
    assert len(list(read_events(lines))) == MAX_EVENTS
