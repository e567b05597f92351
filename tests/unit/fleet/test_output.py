"""Bounded tails, event lines, group marks, results."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coldsnap.artifact.errors import ColdSnapError
from coldsnap.fleet.child.output import EventLines, Tail
from coldsnap.fleet.child.shells import Group, GroupMark
from coldsnap.fleet.results import job_event, operation_result, verb_error


@given(st.lists(st.binary(max_size=50), max_size=30), st.integers(1, 64))
def test_a_tail_is_the_end_however_it_was_cut(chunks, limit):
    tail = Tail(limit)
    for chunk in chunks:
        tail(chunk)
    whole = b"".join(chunks)
    assert tail.data() == whole[-limit:]
    assert tail.is_cut == (len(whole) > limit)
    tail.text()


@given(st.data())
def test_event_lines_are_found_however_the_stream_is_cut(data):
    stream = (
        b'noise \xff\n{"event":"phase","message":"a"}\n{"other":1}\n{"event": 5}\n'
        b'{"event":"progress","done":1}\n{"event" broken\n{"event":"result","ok":true}\nend'
    )
    seen = []
    lines = EventLines(seen.append)
    position = 0
    while position < len(stream):
        step = data.draw(st.integers(1, 40))
        lines(stream[position : position + step])
        position += step
    lines.close()
    assert [event["event"] for event in seen] == ["phase", "progress"]
    assert lines.result == {"event": "result", "ok": True}


def test_a_result_line_without_newline_counts_and_an_endless_line_costs_nothing(monkeypatch):
    monkeypatch.setattr("coldsnap.fleet.child.output.LINE_LIMIT", 1000)
    lines = EventLines(lambda _event: None)
    for _ in range(100):
        lines(b"{" + b"x" * 500)
    assert len(lines._line) <= 1000
    lines(b'\n{"event":"result","ok":true}')
    lines.close()
    assert lines.result == {"event": "result", "ok": True}


@given(st.lists(st.integers(1, 9)))
def test_the_group_mark_is_taken_off_and_the_rest_kept(cuts):
    kept = []
    mark = GroupMark(kept.append)
    stream, position = b"coldsnap-group 1234 567\nerror: x\n", 0
    for cut in [*cuts, len(stream)]:
        mark(stream[position : position + cut])
        position += cut
    mark.close()
    assert mark.group == Group(1234, 567)
    assert b"".join(kept) == b"error: x\n"


@pytest.mark.parametrize(
    "text", [b"", b"cold", b"coldsnap-group x\nrest", b"coldsnap-group 1\nrest", b"other\nrest"]
)
def test_without_a_mark_nothing_is_lost(text):
    kept = []
    mark = GroupMark(kept.append)
    if text:
        mark(text)
    mark.close()
    assert mark.group is None
    assert b"".join(kept) == text


def test_a_failed_verb_is_raised_with_its_place():
    line = {
        "event": "result",
        "ok": False,
        "error": {"code": "criu.dump-failed", "message": "m", "where": "unit u0", "changed": True},
    }
    answer = {"changed": True, "result": line, "stdout": "", "stderr": ""}
    with pytest.raises(ColdSnapError) as caught:
        operation_result(answer, "gpu-1")
    assert caught.value.code == "criu.dump-failed"
    assert caught.value.where == "gpu-1: unit u0"
    assert caught.value.changed


@pytest.mark.parametrize(
    "reported",
    [None, 3, {}, {"code": 7, "message": ["x"], "details": "no list", "source": {"evil": 1}}],
)
def test_nonsense_from_a_host_is_an_error_of_ours(reported):
    assert verb_error(reported, "h").where == "h"


def test_an_error_from_a_host_is_bounded():
    error = verb_error(
        {"code": "a.b", "message": "x" * 10**6, "details": ["y" * 10**5] * 1000}, "h"
    )
    assert len(str(error.to_json())) < 200_000


def test_events_become_what_the_sdk_has():
    event = job_event({"event": "progress", "done": 5.0, "total": True, "unit": "tokens"})
    assert (event.kind, event.done, event.total, event.unit) == ("progress", 5, None, "tokens")
    assert job_event({"event": "other"}) is None
