"""Hosts that are not there."""

from __future__ import annotations

from pathlib import Path

import pytest

from coldsnap.artifact.errors import ColdSnapError
from coldsnap.fleet import InventoryFleet
from coldsnap.fleet.entries import FakeAnswer, FakeAnswers, HostEntry, Inventory
from coldsnap.sdk.host import FactRequest, OperationRequest

ANSWERS = FakeAnswers(
    answers=(
        FakeAnswer("p.f:Verb", "one", {"verb": "a", "request": {"unit": "u0"}}),
        FakeAnswer("p.f:Verb", "any", {"verb": "a", "request": {"unit": "*"}}),
        FakeAnswer("p.f:Plain", 7),
    ),
    results={"p.o:run": {"generation": 3}},
)


def fleet_of(count: int, answers: FakeAnswers = ANSWERS) -> InventoryFleet:
    hosts = {f"f{n}": HostEntry(f"f{n}", "fake", fake=answers) for n in range(count)}
    return InventoryFleet(Inventory("fake.yaml", hosts, {}))


def test_answers_are_chosen_by_arguments():
    host = fleet_of(1).host("f0")

    def verb(**args):
        return host.ask(FactRequest("p.f:Verb", args))

    assert verb(verb="a", request={"unit": "u0", "more": 1}) == "one"
    assert verb(verb="a", request={"unit": "u1"}) == "any"
    assert host.ask(FactRequest("p.f:Plain", {"x": 1})) == 7
    for args in ({"verb": "a", "request": {}}, {"verb": "b", "request": {"unit": "u0"}}, {}):
        with pytest.raises(ColdSnapError) as caught:
            verb(**args)
        assert caught.value.code == "host.fact-failed"


def test_operations_and_uploads_are_recorded(tmp_path):
    host = fleet_of(1).host("f0")
    seen = []
    request = OperationRequest("p.o:run", {"x": 1}, job="j")
    result = host.perform(request, timeout=1, on_event=seen.append)
    assert result.changed
    assert result.result == {"generation": 3}
    assert host.operations == [request]
    assert [event.kind for event in seen] == ["phase"]
    assert host.upload(Path("x"), "/y", sha256="0" * 64) is True
    assert host.upload(Path("x"), "/y", sha256="0" * 64) is False


def test_an_unreachable_one_fails_everywhere_and_hurts_no_other():
    hosts = {
        "good": HostEntry("good", "fake", fake=ANSWERS),
        "bad": HostEntry("bad", "fake", fake=FakeAnswers(unreachable="it is off")),
    }
    fleet = InventoryFleet(Inventory("fake.yaml", hosts, {}))
    asked = [FactRequest("p.f:Plain")]
    assert list(fleet.connect(["good", "bad"])) == ["bad"]
    errors = fleet.prefetch({"good": asked, "bad": asked})
    assert {name: error.code for name, error in errors.items()} == {"bad": "host.unreachable"}
    assert fleet.host("good").ask(asked[0]) == 7
    with pytest.raises(ColdSnapError, match="it is off"):
        fleet.host("bad").perform(OperationRequest("p.o:run"))


def test_prefetched_answers_hold_until_something_changes(monkeypatch):
    fleet = fleet_of(1)
    host = fleet.host("f0")
    asked = FactRequest("p.f:Plain")
    count = []
    real = host._answer
    monkeypatch.setattr(host, "_answer", lambda request: count.append(request) or real(request))
    fleet.prefetch({"f0": [asked, asked]})
    assert (host.ask(asked), host.ask_all([asked, asked])) == (7, [7, 7])
    assert len(count) == 1
    host.perform(OperationRequest("p.o:run"))
    host.ask(asked)
    assert len(count) == 2
    fleet.prefetch({"f0": [asked]})
    fleet.forget(["f0"])
    host.ask(asked)
    assert len(count) == 4


def test_no_child_for_10000_facts():
    fleet = fleet_of(200)
    requests = [
        FactRequest("p.f:Verb", {"verb": "a", "request": {"unit": f"u{n}"}}) for n in range(50)
    ]
    assert not fleet.prefetch({f"f{n}": requests for n in range(200)})
    values = [fleet.host(f"f{n}").ask_all(requests) for n in range(200)]
    assert values[199] == ["one", *["any"] * 49]
    assert fleet.link.pid is None
