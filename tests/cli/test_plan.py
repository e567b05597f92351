"""The plan and runs commands from end to end, on hosts that are not there."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import signal
import subprocess
import time

import pytest

UNIT = {
    "unit": "u0",
    "generation": 11,
    "state": "serving",
    "exposed": True,
    "engine": "reference",
    "model": "m",
    "launch_sha256": "",
    "artifact": None,
    "since": 0,
    "ports": [],
}
PLAN = """\
coldsnap: plan/v1
name: stop-all
description: Put units to sleep, then stop them
vars:
  keep: {type: string, default: none, enum: [newest, none], description: what to keep}
engine: reference
model: {id: m, path: /models/m}
units: [{id: u0, hosts: gpu}]
steps:
  - {id: sleep, type: core.sleep}
  - {id: evict, type: core.evict, needs: [sleep], with: {keep: "{{ vars.keep }}"}}
"""


def host(*units: dict, **more) -> dict:
    status = {"fact": "coldsnap_core.facts:RuntimeVerb", "args": {"verb": "unit.status"}}
    return {
        "connector": "@fake",
        "answers": [{**status, "value": {"units": list(units)}}],
        "results": {
            "coldsnap_core.operations:runtime_verb": {"generation": 11, "timing": None},
            "coldsnap_core.operations:lease": {},
            "coldsnap_core.operations:jobs_ended": {},
        },
        **more,
    }


@pytest.fixture
def inventory(cli):
    def write(**hosts: dict) -> None:
        folder = cli.project / "inventories"
        folder.mkdir(exist_ok=True)
        document = {
            "coldsnap": "inventory/v1",
            "hosts": hosts,
            "groups": {"gpu": {"hosts": list(hosts)}},
        }
        (folder / "local.yaml").write_text(json.dumps(document))

    (cli.project / "plan.yaml").write_text(PLAN)
    (cli.project / "coldsnap.yaml").write_text("")
    write(**{"gpu-1": host(UNIT), "gpu-2": host(UNIT)})
    return write


def steady(text: str) -> str:
    """Without run ids, digests, dates, times and durations."""
    text = re.sub(r"01[0-9A-HJKMNP-TV-Z]{24}", "RUN", text)
    text = re.sub(r"sha256:[0-9a-f]{64}", "DIGEST", text)
    text = re.sub(r"sha256:[0-9a-f]{12}\.\.", "DIGEST", text)
    text = re.sub(r"\d{4}-\d\d-\d\d", "DATE", text)
    text = re.sub(r"\d\d:\d\d:\d\d", "TIME", text)
    return re.sub(r"\b\d+(\.\d+)? m?s\b", "TOOK", text)


def test_validate(cli, inventory) -> None:
    assert cli("plan", "validate", "plan.yaml").out == "plan.yaml: valid, 2 steps\n"
    assert cli("plan", "validate", "plan.yaml", "--json").json[0]["valid"] is True


def test_validate_shows_every_error_with_its_place(cli, inventory) -> None:
    text = PLAN.replace("type: core.sleep", "type: core.slep").replace("needs:", "neds:")
    (cli.project / "bad.yaml").write_text(text)
    done = cli("plan", "validate", "plan.yaml", "bad.yaml", code=1)
    assert done.out == "plan.yaml: valid, 2 steps\n"
    assert "error[plan.unknown-type]" in done.err
    assert "bad.yaml:10:" in done.err
    assert "> 10 |   - {id: sleep, type: core.slep}" in done.err
    assert "error[plan.unknown-field]" in done.err
    data = cli("plan", "validate", "bad.yaml", "--json", code=1).json
    assert data[0]["error"]["source"]["line"] == 10


def test_a_file_that_is_not_there(cli) -> None:
    assert "error[plan.not-found]" in cli("plan", "show", "nope.yaml", code=1).err


def test_show_is_golden(cli, inventory, golden) -> None:
    golden("plan-show.txt", steady(cli("plan", "show", "plan.yaml").out))
    golden("plan-show-expanded.txt", steady(cli("plan", "show", "plan.yaml", "--expanded").out))


def test_variables_by_flag_file_and_environment(cli, inventory) -> None:
    def keep(*arguments: str, env: dict[str, str] | None = None) -> tuple[str, str]:
        found = cli("plan", "show", "plan.yaml", "--json", *arguments, env=env).json
        return found["variables"]["keep"]["value"], found["variables"]["keep"]["origin"]

    (cli.project / "vars.yaml").write_text("keep: newest\n")
    env = {"COLDSNAP_VAR_KEEP": "newest"}
    assert keep() == ("none", "default")
    assert keep(env=env) == ("newest", "env")
    assert keep("--var-file", "vars.yaml") == ("newest", "var-file")
    assert keep("--var", "keep=none", "--var-file", "vars.yaml", env=env) == ("none", "flag")


@pytest.mark.parametrize("form", ["text", "mermaid", "dot"])
def test_graph_is_golden(cli, inventory, golden, form) -> None:
    golden(f"plan-graph.{form}", cli("plan", "graph", "plan.yaml", "--format", form).out)


def test_graph_goes_to_a_file(cli, inventory) -> None:
    assert cli("plan", "graph", "plan.yaml", "-f", "svg", "-o", "g.svg").out == "g.svg\n"
    assert (cli.project / "g.svg").read_text().startswith("<svg")


def test_diff_is_golden(cli, inventory, golden) -> None:
    done = cli("plan", "diff", "plan.yaml")
    assert done.err == ""
    golden("plan-diff.txt", done.out)
    golden("plan-diff.json", steady(cli("plan", "diff", "plan.yaml", "--json").out))


def test_detailed_exit_code(cli, inventory) -> None:
    cli("plan", "diff", "plan.yaml", "--detailed-exitcode", code=2)
    inventory(**{"gpu-1": host()})
    (cli.project / "plan.yaml").write_text(PLAN.replace("  - {id: sleep, type: core.sleep}\n", "")
                                           .replace("needs: [sleep], ", ""))  # fmt: skip
    done = cli("plan", "diff", "plan.yaml", "--detailed-exitcode", code=0)
    assert done.out.startswith("No changes. 1 step checked on 1 host")


def test_a_host_that_is_not_reached_is_told_and_fails(cli, inventory) -> None:
    inventory(**{"gpu-1": host(UNIT), "gpu-2": host(UNIT, unreachable="cable cut")})
    done = cli("plan", "diff", "plan.yaml", "--detailed-exitcode", code=1)
    assert "gpu-2" in done.out
    assert "error[host.unreachable]" in done.err
    assert "cable cut" in done.err


def test_an_unknown_host_or_inventory(cli, inventory) -> None:
    (cli.project / "plan.yaml").write_text(PLAN.replace("hosts: gpu}", "hosts: gpus}"))
    done = cli("plan", "diff", "plan.yaml", code=1)
    assert "error[inventory.unknown-host]" in done.err
    assert 'did you mean "gpu"' in done.err
    assert "error[inventory." in cli("plan", "diff", "plan.yaml", "-i", "x.yaml", code=1).err


def test_apply_needs_a_yes(cli, inventory) -> None:
    done = cli("plan", "apply", "plan.yaml", code=1)
    assert "error[cli.not-confirmed]" in done.err
    assert "add --yes" in done.err
    assert not (cli.project / ".coldsnap").exists()


def test_apply_then_look_at_the_run(cli, inventory, golden) -> None:
    done = cli("plan", "apply", "plan.yaml", "--yes", "--progress", "plain")
    assert "\x1b" not in done.out + done.err
    golden("plan-apply.txt", steady(done.out))
    assert "gpu-1 sleep u0: " in done.err
    assert "gpu-2 evict u0: done" in done.err
    listed = cli("runs", "list", "--json").json
    assert [(run["plan"], run["state"]) for run in listed] == [("stop-all", "succeeded")]
    golden("runs-show.txt", re.sub(r" +", " ", steady(cli("runs", "show").out)))
    shown = cli("runs", "show", "latest", "--json").json
    assert {i["state"] for i in shown["instances"]} == {"done"}
    assert "1 journal intact" in cli("runs", "verify").out
    cli("runs", "report", "latest", "--html", "r.html")
    assert "stop-all" in (cli.project / "r.html").read_text()


def test_apply_answers_in_json(cli, inventory) -> None:
    done = cli("plan", "apply", "plan.yaml", "--yes", "--json", "--progress", "json")
    assert done.json["state"] == "succeeded"
    assert done.json["changed"] == 4
    events = [json.loads(line) for line in done.err.splitlines()]
    kinds = [event["event"] for event in events]
    assert kinds[0] == "run-started"
    assert kinds[-1] == "run-finished"
    assert kinds.count("step-done") == 4


def test_progress_none_says_nothing(cli, inventory) -> None:
    done = cli("plan", "apply", "plan.yaml", "--yes", "--progress", "none")
    assert done.err == ""


def test_a_slice_leaves_the_rest_alone(cli, inventory) -> None:
    only = cli("plan", "diff", "plan.yaml", "--only", "sleep", "--json").json
    pending = {i["step"] for i in only["instances"] if i["change"]}
    assert pending == {"sleep"}
    until = cli("plan", "diff", "plan.yaml", "--until", "sleep", "--json").json
    assert {i["step"] for i in until["instances"] if i["change"]} == {"sleep"}
    bad = cli("plan", "diff", "plan.yaml", "--from", "slep", code=1)
    assert 'did you mean "sleep"' in bad.err


def test_a_saved_plan_is_applied_as_it_was_reviewed(cli, inventory) -> None:
    done = cli("plan", "diff", "plan.yaml", "--out", "s.plan", "--var", "keep=newest")
    assert "Saved to s.plan. Next: coldsnap plan apply s.plan" in done.out
    assert "cli.usage" in cli("plan", "apply", "s.plan", "--var", "keep=none", code=1).err
    applied = cli("plan", "apply", "s.plan", "--json").json
    assert applied["state"] == "succeeded"


def test_a_stale_saved_plan_is_exit_4(cli, inventory) -> None:
    cli("plan", "diff", "plan.yaml", "--out", "s.plan")
    inventory(**{"gpu-1": host(UNIT | {"generation": 12}), "gpu-2": host(UNIT)})
    done = cli("plan", "apply", "s.plan", code=4)
    assert "error[plan.stale]" in done.err
    assert "remedy: review it again" in done.err
    assert not (cli.project / ".coldsnap" / "runs").exists()


def test_an_edited_saved_plan_is_refused(cli, inventory) -> None:
    cli("plan", "diff", "plan.yaml", "--out", "s.plan")
    path = cli.project / "s.plan"
    path.write_text(path.read_text().replace("stop-all", "stop-alL"))
    assert "error[plan.saved-damaged]" in cli("plan", "apply", "s.plan", code=1).err


def test_finished_runs_are_not_resumed_or_rolled_back(cli, inventory) -> None:
    cli("plan", "apply", "plan.yaml", "--yes")
    assert "error[run.finished]" in cli("plan", "resume", code=1).err
    assert "error[run.finished]" in cli("plan", "rollback", "latest", "--yes", code=1).err
    assert "error[run.unknown]" in cli("plan", "resume", "01ZZZ", code=1).err


@pytest.mark.parametrize("driver", ["n580", "c580", "n610"])
def test_a_driver_that_the_engine_does_not_support_is_refused_first(cli, inventory, driver) -> None:
    """Not after the engine was started, paused and dumped with another one."""
    plan = PLAN.replace("engine: reference", f"engine: reference\ndriver: {driver}")
    (cli.project / "plan.yaml").write_text(plan)
    for verb in (["validate"], ["diff"], ["apply", "--yes"]):
        done = cli("plan", verb[0], "plan.yaml", *verb[1:], code=1)
        assert "error[plan.driver-unsupported]" in done.err
        assert f"the engine reference cannot be captured with driver {driver}" in done.err
    assert not (cli.project / ".coldsnap" / "runs").exists()


def test_a_store_that_is_not_the_plans_is_refused_or_told(cli, inventory) -> None:
    """A plan says itself where its captures live; a flag cannot change what was reviewed."""
    done = cli("--store", "oci-layout:/srv/other", "plan", "validate", "plan.yaml", code=1)
    assert "error[plan.store-differs]" in done.err
    assert "write store: oci-layout:/srv/other" in done.err
    told = cli("plan", "validate", "plan.yaml", env={"COLDSNAP_STORE": "/srv/other"})
    assert "COLDSNAP_STORE names /srv/other; this plan uses its own store" in told.err
    plan = (cli.project / "plan.yaml").read_text()
    (cli.project / "plan.yaml").write_text(plan + "store: oci-layout:/srv/other\n")
    same = cli("plan", "validate", "plan.yaml", env={"COLDSNAP_STORE": "/srv/other"})
    assert "COLDSNAP_STORE" not in same.err


def test_a_tampered_journal_is_reported(cli, inventory) -> None:
    cli("plan", "apply", "plan.yaml", "--yes")
    (journal,) = (cli.project / ".coldsnap" / "runs").glob("01*/journal.jsonl")
    journal.chmod(0o600)
    journal.write_text(journal.read_text().replace('"unit.sleep"', '"unit.slept"', 1)
                       .replace("gpu-1", "gpu-3", 1))  # fmt: skip
    done = cli("runs", "verify", code=1)
    assert "error[journal.tampered]" in done.err
    assert "line 1" in done.err
    assert cli("runs", "list", "--json").json[0]["state"] == "damaged"


def terminal(cli, *arguments: str, typed: bytes) -> tuple[int, str]:
    """Run on a pseudo terminal; `typed` goes in when a question is seen."""
    pid, descriptor = pty.fork()
    if pid == 0:
        os.chdir(cli.project)
        os.execve(cli.argv()[0], cli.argv(*arguments), cli.env | {"TERM": "xterm"})
    seen, deadline, sent = b"", time.monotonic() + 60, False
    while time.monotonic() < deadline:
        if not select.select([descriptor], [], [], 1)[0]:
            continue
        try:
            data = os.read(descriptor, 65536)
        except OSError:
            break
        seen += data
        if b"[y/N]" in seen and not sent:
            os.write(descriptor, typed)
            sent = True
    _, status = os.waitpid(pid, 0)
    os.close(descriptor)
    return os.waitstatus_to_exitcode(status), seen.decode()


def test_on_a_terminal_it_shows_the_preview_and_asks(cli, inventory) -> None:
    code, seen = terminal(cli, "plan", "apply", "plan.yaml", typed=b"n\n")
    assert code == 1
    assert "Plan: " in seen
    assert "cli.declined" in seen
    assert "\x1b[" in seen
    assert not (cli.project / ".coldsnap" / "runs").exists()
    code, seen = terminal(cli, "plan", "apply", "plan.yaml", typed=b"y\n")
    assert code == 0
    assert "gpu-1" in seen
    assert cli("runs", "list", "--json").json[0]["state"] == "succeeded"


def test_no_color_holds_on_a_terminal(cli, inventory) -> None:
    cli.env["NO_COLOR"] = "1"
    _, seen = terminal(cli, "plan", "diff", "plan.yaml", typed=b"")
    assert "\x1b" not in seen


def cancelled(cli, inventory, number: int) -> tuple[int, str]:
    """Apply a plan and send it a signal while a step waits; its exit code and its last words."""
    text = PLAN.replace("type: core.sleep}", "type: core.sleep, retry: {attempts: 9, delay: 30s}}")
    (cli.project / "plan.yaml").write_text(text)
    # Without an answer the step cannot be observed: it fails, and waits for its second try.
    inventory(**{"gpu-1": host(UNIT, answers=[])})
    process = subprocess.Popen(
        cli.argv("plan", "apply", "plan.yaml", "--yes", "--progress", "plain"),
        cwd=cli.project,
        env=cli.env,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    for line in process.stderr:
        if "try 1 failed" in line:
            process.send_signal(number)
            break
    _, rest = process.communicate(timeout=60)
    inventory(**{"gpu-1": host(UNIT)})
    return process.returncode, rest


@pytest.mark.parametrize("verb", ["resume", "rollback"])
def test_what_goes_on_later_takes_yes_and_tells_its_own_time(cli, inventory, verb) -> None:
    cancelled(cli, inventory, signal.SIGINT)
    time.sleep(4)
    started = time.monotonic()
    said = cli("plan", verb, "latest", "--yes").out
    whole = time.monotonic() - started
    word = {"resume": "succeeded", "rollback": "rolled-back"}[verb]
    found = re.search(rf"^ {word}  stop-all in ([\d.]+) (ms|s)$", said, re.MULTILINE)
    assert found, said
    took = float(found[1]) / (1000 if found[2] == "ms" else 1)
    assert took <= whole, "not the time that the run lay idle"


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_during_apply_leaves_a_run_to_resume(cli, inventory, number, code) -> None:
    returned, rest = cancelled(cli, inventory, number)
    assert returned == code
    assert "nothing more starts" in rest, rest
    assert cli("runs", "list", "--json").json[0]["state"] == "cancelled"
    resumed = cli("plan", "resume", "latest", "--json").json
    assert resumed["state"] == "succeeded"


def test_status_and_doctor_of_fake_hosts(cli, inventory) -> None:
    shown = cli("status", "--json").json
    assert [(s["host"], s["units"][0]["generation"]) for s in shown] == [
        ("gpu-1", 11),
        ("gpu-2", 11),
    ]
    assert "serving" in cli("status").out
    assert cli("status", "gpu-1", "--json").json[0]["host"] == "gpu-1"
    assert "error[inventory.unknown-host]" in cli("status", "nope", code=1).err
    done = cli("doctor", code=1)
    assert "not reached" in done.out
