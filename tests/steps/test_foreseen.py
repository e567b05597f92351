"""What a preview says of steps whose parameters wait for a restore that is to come."""

from __future__ import annotations

from typing import Any

import pytest
from stage_set import RecordingHost, context

from coldsnap.sdk import Action, Change
from coldsnap_core.accept.step import Accept
from coldsnap_core.checkpoint.step import Checkpoint
from coldsnap_core.evict.step import Evict
from coldsnap_core.expose.step import Expose
from coldsnap_core.hydrate.step import Hydrate
from coldsnap_core.publish.step import Publish

SERVING = {"unit": "u0", "generation": 4, "state": "serving", "exposed": True}


def foreseen(step: Any, *units: dict[str, Any]) -> Change | None:
    host = RecordingHost({"unit.status": {"units": list(units)}}, {})
    change: Change | None = step().foresee(context(step, host, {}))
    assert not host.performed
    return change


def test_what_serves_now_will_be_stopped() -> None:
    change = foreseen(Evict, SERVING)
    assert change is not None
    assert change.action is Action.STOP
    assert [(row.action, row.detail) for row in change.rows] == [
        (Action.STOP, "generation 4, serving, once replaced")
    ]
    assert not change.pauses_serving, "its replacement serves by then"


def test_where_nothing_runs_nothing_will_be_stopped() -> None:
    change = foreseen(Evict)
    assert change is not None
    assert not change.is_pending


@pytest.mark.parametrize(
    ("units", "action", "said"),
    [((), Action.CREATE, ""), ((SERVING,), Action.CHANGE, "move from generation 4")],
)
def test_the_ports_will_move(units: Any, action: Action, said: str) -> None:
    change = foreseen(Expose, *units)
    assert change is not None
    assert change.action is action
    assert said in change.rows[0].detail


def test_the_recorded_answers_will_be_demanded() -> None:
    change = foreseen(Accept)
    assert change is not None
    assert "must equal the capture's" in change.rows[0].detail


def test_model_bytes_will_come_back() -> None:
    change = foreseen(Hydrate)
    assert change is not None
    assert "model bytes and KV back" in change.rows[0].detail


def test_a_dump_will_pause_serving() -> None:
    change = foreseen(Checkpoint, SERVING)
    assert change is not None
    assert change.pauses_serving
    assert change.rows[0].detail == "of generation 4"


def test_what_cannot_be_known_is_not_guessed() -> None:
    assert foreseen(Publish) is None
