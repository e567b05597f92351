"""The preview's text and JSON against golden files; the fixed last line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from coldsnap.artifact.errors import ColdSnapError
from coldsnap.engine.preview import InstanceKey, InstancePreview, Preview
from coldsnap.render.palette import Palette
from coldsnap.render.preview import preview_json, preview_text, summary_line
from coldsnap.sdk.change import Action, Change, Row, unchanged

GOLDEN = Path(__file__).parent / "golden"


def instance(
    step: str, host: str, change: Change | None, unit: str = "", **more
) -> InstancePreview:
    return InstancePreview(InstanceKey(step, host, unit), f"core.{step}", change, **more)


def preview(*instances: InstancePreview, **more) -> Preview:
    return Preview("p", "plans/p.yaml", "sha256:aa", "sha256:bb", "", instances, **more)


def restore(host: str = "gpu-1") -> tuple[InstancePreview, ...]:
    stage = Change(
        Action.CREATE,
        "stage 2 files",
        (
            Row(Action.CREATE, "runtime pack", "sha256:51c0..  14 MiB"),
            Row(Action.CREATE, "capsule", "sha256:9be1..  1.9 GiB"),
            Row(Action.NONE, "payload", "sha256:07aa..  15.3 GiB  verified 2 days ago"),
        ),
    )
    evict = Change(
        Action.STOP,
        "stop generation 11",
        (Row(Action.STOP, "unit u0", "generation 11, serving since 09:14"),),
        pauses_serving=True,
        pause_seconds=3.0,
    )
    create = Change(
        Action.CREATE,
        "restore generation 12",
        (Row(Action.CREATE, "unit u0", "generation 12, driver c580"),),
    )
    return (
        instance("stage", host, stage),
        instance("preflight", host, unchanged("driver 580.159 >= 580")),
        instance("evict", host, evict, "u0"),
        instance("restore", host, create, "u0"),
        instance("accept", host, Change(Action.UNKNOWN, "answers must equal the capture's"), "u0"),
    )


CASES = {
    "restore": (preview(*restore()), False),
    "restore-all": (preview(*restore()), True),
    "same-on-hosts": (
        preview(*(i for n in range(1, 9) for i in restore(f"gpu-{n}"))),
        False,
    ),
    "no-changes": (preview(instance("stage", "gpu-1", unchanged("all there"))), False),
    "errors": (
        preview(
            *restore(),
            instance(
                "preflight",
                "gpu-2",
                None,
                error=ColdSnapError("restore.no-memory", "71 GiB needed", where="gpu-2"),
            ),
            InstancePreview(InstanceKey("publish"), "core.publish", None, skipped="when is false"),
            unreachable={"gpu-3": ColdSnapError("host.unreachable", "connection refused")},
        ),
        True,
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_text_is_golden(name: str, golden) -> None:
    shown, show_all = CASES[name]
    golden(GOLDEN / f"preview-{name}.txt", preview_text(shown, show_all=show_all) + "\n")


@pytest.mark.parametrize("name", ["restore", "errors"])
def test_json_is_golden(name: str, golden) -> None:
    text = json.dumps(preview_json(CASES[name][0]), indent=2)
    golden(GOLDEN / f"preview-{name}.json", text + "\n")


def test_last_line_is_fixed() -> None:
    assert summary_line(preview(*restore())) == (
        "Plan: 3 to create, 1 to stop, 1 known after apply, 2 unchanged on 1 host."
        " 1 step pauses serving (about 3 s)."
    )


def test_no_changes_says_what_was_looked_at() -> None:
    line = summary_line(preview(instance("stage", "gpu-1", unchanged("there"))))
    assert line == "No changes. 1 step checked on 1 host; everything is as the plan says."


def test_legend_explains_only_what_is_used() -> None:
    shown = preview_text(preview(instance("stop", "h", Change(Action.STOP, "stop it"))))
    assert shown.splitlines()[0] == "  - stop"


def test_units_are_named_when_a_host_has_several() -> None:
    stop = Change(Action.STOP, "stop it")
    shown = preview_text(
        preview(instance("evict", "h", stop, "u0"), instance("evict", "h", stop, "u1"))
    )
    assert "evict u0" in shown
    assert "evict u1" in shown


def test_hostile_text_cannot_move_the_cursor() -> None:
    change = Change(Action.CREATE, "x", (Row(Action.CREATE, "a\x1b[2J", "b\rc\nd"),))
    shown = preview_text(preview(instance("stage", "h", change)))
    assert "\x1b" not in shown
    assert "\r" not in shown
    assert "b?c d" in shown


def test_colour_only_when_asked() -> None:
    assert "\x1b[" in preview_text(CASES["restore"][0], Palette(True))
    assert "\x1b[" not in preview_text(CASES["restore"][0])


def test_what_is_to_be_known_is_shown_though_nothing_is_done() -> None:
    row = Row(Action.CHANGE, "model", "weights was written since")
    change = unchanged("captured already", Row(Action.NONE, "capsule", "sha256:9be1.."), row)
    text = preview_text(preview(instance("launch", "gpu-1", change)))
    assert "launch   ~ model   weights was written since" in text
    assert "capsule" not in text
    assert text.splitlines()[-1].startswith("No changes.")
