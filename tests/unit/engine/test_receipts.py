from __future__ import annotations

import json

from engine_world import World, node

from coldsnap.artifact.receipt import read_receipt
from coldsnap.engine.applying import apply
from coldsnap.engine.history import fold
from coldsnap.engine.journal import verify
from coldsnap.engine.receipts import run_timing
from coldsnap.engine.resuming import resume
from coldsnap.engine.runs import Runs


def summary(world: World) -> dict:
    return json.loads(Runs(world.folder).find("latest").summary.read_text())


def test_run_json_sums_the_run_up_and_anchors_the_journal(world: World) -> None:
    result = apply(world.setup(node("a", seconds=0.1), node("b", needs=["a"], hosts="a-1")))
    run = summary(world)
    assert (run["state"], run["exit_code"], run["run"]) == ("succeeded", 0, result.run)
    assert run["counts"]["changed"] == 3
    assert run["plan"]["name"] == "test"
    assert run["journal"]["head_sha256"] == verify(Runs(world.folder).find("latest").journal).head
    spans = {span["id"]: span for span in run["timing"]["spans"]}
    assert set(spans) == {"run.a.a-1", "run.a.a-2", "run.b.a-1"}
    assert spans["run.a.a-1"]["duration_seconds"] >= 0.1
    assert spans["run.b.a-1"]["start_offset_seconds"] >= 0.1


def test_failed_run_says_why(world: World) -> None:
    apply(world.setup(node("a", fail=1, hosts="a-1")))
    run = summary(world)
    assert run["state"] == "recovered"
    assert run["errors"][0]["code"] == "test.failed"


def test_end_of_the_journal_that_is_cut_off_is_noticed(world: World) -> None:
    apply(world.setup(node("a")))
    runs = Runs(world.folder)
    folder = runs.find("latest")
    lines = folder.journal.read_bytes().splitlines(keepends=True)
    folder.journal.write_bytes(b"".join(lines[:-2]))
    assert verify(folder.journal).intact  # the chain alone cannot see it
    assert runs.summary(folder).state == "damaged"
    assert runs.summary(folder).fault.code == "journal.cut"


def test_resumed_run_replaces_its_receipt(world: World) -> None:
    steps = [node("a", fail=1, on_failure="stop", hosts="a-1")]
    apply(world.setup(*steps))
    assert summary(world)["state"] == "failed"
    resume(world.setup(*steps), Runs(world.folder).find("latest"))
    assert summary(world)["state"] == "succeeded"
    assert Runs(world.folder).summary(Runs(world.folder).find("latest")).state == "succeeded"


def test_run_that_was_killed_after_a_resume_began_is_not_damaged(world: World) -> None:
    steps = [node("a", fail=1, on_failure="stop", hosts="a-1")]
    apply(world.setup(*steps))
    folder = Runs(world.folder).find("latest")
    from coldsnap.engine.journal import Journal  # noqa: PLC0415

    journal, _ = Journal.reopen(folder.journal)
    journal.append("run.resumed", {"pid": 1})
    journal.close()
    assert Runs(world.folder).summary(folder).state == "interrupted"


def test_operation_receipt_of_a_plan_with_an_engine(world: World) -> None:
    import dataclasses  # noqa: PLC0415

    from coldsnap.engine.receipts import write_receipts  # noqa: PLC0415

    result = apply(world.setup(node("a")))
    folder = Runs(world.folder).find("latest")
    history = fold(verify(folder.journal).records)
    first = next(iter(history.instances.values()))
    first.outputs = {"artifact": "sha256:" + "a" * 64}
    step = dataclasses.replace(world.plan(node("r")).steps[0], type="core.restore")
    plan = dataclasses.replace(world.plan(node("a")), engine="reference", steps=(step,))
    write_receipts(plan, folder, history, result)
    receipt = read_receipt(folder.receipt)
    assert (receipt.operation, receipt.state, receipt.engine) == (
        "restore",
        "succeeded",
        "reference",
    )
    assert receipt.result.artifact == "sha256:" + "a" * 64
    assert receipt.timing is not None
    assert folder.receipt.stat().st_mode & 0o777 == 0o600


def test_spans_of_the_target_are_merged_in(world: World) -> None:
    apply(world.setup(node("a", hosts="a-1")))
    history = world.last()
    item = next(iter(history.instances.values()))
    item.outputs = {
        "timing": {
            "format": 1,
            "clocks": [{"id": "t", "source": "CLOCK_BOOTTIME", "origin_unix_ns": 5}],
            "spans": [
                {
                    "id": "s1",
                    "name": "dump",
                    "clock": "t",
                    "start_offset_seconds": 0.0,
                    "duration_seconds": 1.5,
                    "status": "ok",
                    "parent": None,
                    "attributes": {},
                }
            ],
        }
    }
    timing = run_timing(history)
    assert timing is not None
    names = {span.name: span.duration_seconds for span in timing.spans}
    assert names["dump"] == 1.5
    assert len(timing.clocks) == 2
