"""Every fault that the first issue names, by typed commands: one clear reason, the exit code, and
what served before serves, with nothing left behind.

An engine serves all the time; each fault happens beside it or to it. What cannot be brought about
by typing is tested below: a PID limit (tests/runtime/units), clocks that jump (tests/runtime/
test_lease, which has the boot's own clock), kill -9 at each phase (test_reference).
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from faulty import HEAD, PLANS, STAGE, engine_plan, restore_plan
from project import ROOT, Project, complete, free_port, serves, until_step

pytestmark = [pytest.mark.criu, pytest.mark.timeout(600)]


def refused(
    done: subprocess.CompletedProcess[str], error: str, code: int = 1
) -> subprocess.CompletedProcess[str]:
    """One clear reason by name, the exit code, no traceback, and what helps."""
    said = done.stdout + done.stderr
    assert done.returncode == code, said
    assert f"error[{error}]" in done.stderr, said
    assert "Traceback" not in said
    (head, *_) = [line for line in done.stderr.splitlines() if line.startswith(f"error[{error}]")]
    assert len(head.partition("]: ")[2]) > 10, head
    return done


# --- plans: no host is asked -----------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(PLANS))
def test_bad_plan(tmp_path: Path, name: str) -> None:
    error, text = PLANS[name]
    plan = tmp_path / "plan.yaml"
    plan.write_bytes(text.encode() if isinstance(text, str) else text)
    given = ["--var", "nobody=1"] if name == "unknown variable" else []
    made = Project(tmp_path / "project", tmp_path)
    done = refused(made.run("plan", "validate", str(plan), *given), error)
    if name == "cycle":
        assert re.search(r"a .*b .*a", done.stderr), "the cycle is named"


# --- hosts -----------------------------------------------------------------------------------


@pytest.fixture
def stage(tmp_path: Path) -> Project:
    made = Project(tmp_path / "project", tmp_path)
    (made.folder / "stage.yaml").write_text(HEAD + STAGE)
    return made


def applied(project: Project, hosts: dict[str, object]) -> subprocess.CompletedProcess[str]:
    inventory = project.folder / "hosts.yaml"
    inventory.write_text(json.dumps({"coldsnap": "inventory/v1", "hosts": hosts}))
    return project.run("plan", "apply", "stage.yaml", "-i", str(inventory), "--yes")


def test_unreachable_host(stage: Project) -> None:
    host = {"connector": "@ssh", "hostname": "127.0.0.1", "port": free_port(), "user": "root"}
    done = refused(applied(stage, {"far": host}), "host.unreachable")
    assert "far" in done.stderr


def test_host_without_root(stage: Project) -> None:
    text = (ROOT / "inventories" / "fake.yaml").read_text()
    inventory = stage.folder / "fake.yaml"
    inventory.write_text(text.replace("uid: 0, writable", "uid: 1000, writable"))
    done = stage.run("plan", "diff", "stage.yaml", "-i", str(inventory))
    assert done.returncode == 1, done.stdout + done.stderr
    assert "host.not-root" in done.stdout + done.stderr
    assert "sudo: true" in done.stdout + done.stderr, "the remedy"


@pytest.mark.parametrize("what", ["missing", "old"])
def test_criu_that_is_missing_or_too_old(stage: Project, what: str) -> None:
    program = stage.folder / "criu"
    if what == "old":
        program.write_text("#!/bin/sh\necho Version: 3.17.1\n")
        program.chmod(0o755)
    done = stage.run("runtime", "build", COLDSNAP_CRIU=str(program))
    refused(done, "criu.unusable")
    assert {"missing": "is not there", "old": "3.17.1; 4.1 or newer is needed"}[what] in done.stderr
    assert "remedy:" in done.stderr


# --- a unit that serves ----------------------------------------------------------------------


@pytest.fixture(scope="module")
def served() -> Iterator[Project]:
    """An engine that was captured and serves; plans for what is done beside it.

    Not below /tmp: a unit has one of its own, and could not see a runtime pack that came later.
    """
    place = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    place.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="coldsnap-faults-", dir=place) as folder:
        yield from serving(Path(folder))


def serving(folder: Path) -> Iterator[Project]:
    model = folder / "model"
    make = [sys.executable, "-m", "coldsnap_reference_engine", "make-model", str(model)]
    subprocess.run([*make, "--size", "4MB", "--seed", "0"], check=True)
    made = Project(folder / "project", model)
    plans = {
        "capture": engine_plan(model),
        "restore": restore_plan(model),
        "dies": engine_plan(model, "dies"),
        "deaf": engine_plan(
            model,
            "deaf",
            "{uses: reference.capture, with: {name: deaf, prompts: [Once], ready_timeout: 2s}}",
        ),
    }
    for name, text in plans.items():
        (made.folder / f"{name}.yaml").write_text(text)
    try:
        done = typed(made, "capture", name="good")
        assert done.returncode == 0, done.stdout + done.stderr
        yield made
    finally:
        made.clean()
        assert not made.live()


def command(project: Project, plan: str, *flags: str, **variables: object) -> list[str]:
    values = {"port": project.port, **variables}
    given = [part for name, value in values.items() for part in ("--var", f"{name}={value}")]
    path = str(project.folder / f"{plan}.yaml")
    return ["plan", "apply", path, "-i", str(project.inventory), "--yes", *given, *flags]


def typed(
    project: Project, plan: str, *flags: str, **variables: object
) -> subprocess.CompletedProcess[str]:
    return project.run(*command(project, plan, *flags, **variables))


@pytest.fixture
def unharmed(served: Project) -> Iterator[Project]:
    """Before and after, the same engine gives the same answer, and nothing else is there."""
    before = complete(served.port, tokens=4)
    (record,) = served.live()
    yield served
    assert complete(served.port, tokens=4) == before
    assert [one["init"] for one in served.live()] == [record["init"]]
    assert not list(served.state.glob("leases/*.json"))
    assert not list(served.state.glob("captures/*/*")), "no half capture"
    assert not list(served.state.glob("store/staging/*")), "no half blob"
    mounted = Path("/proc/self/mounts").read_text()
    assert str(served.folder) not in mounted


def test_port_that_is_taken(unharmed: Project) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        done = typed(unharmed, "restore", name="good", unit="second", port=port)
    refused(done, "expose.port-taken")
    assert str(port) in done.stderr


def test_the_preview_tells_what_could_only_fail_later(unharmed: Project) -> None:
    """A model that is not there, a port that another program has."""
    model = unharmed.folder / "elsewhere"
    plan = unharmed.folder / "elsewhere.yaml"
    plan.write_text(engine_plan(model))
    where = ["-i", str(unharmed.inventory), "--var", f"port={free_port()}", "--var", "unit=new"]
    done = refused(unharmed.run("plan", "diff", str(plan), *where), "launch.folder-missing")
    assert str(model) in done.stderr
    taken = ["-i", str(unharmed.inventory), "--var", f"port={unharmed.port}", "--var", "unit=new"]
    diff = ["plan", "diff", str(unharmed.folder / "capture.yaml")]
    refused(unharmed.run(*diff, *taken), "expose.port-taken")


def test_the_preview_of_a_restore_tells_what_will_be_stopped(unharmed: Project) -> None:
    plan = str(unharmed.folder / "restore.yaml")
    port = free_port()
    where = ["-i", str(unharmed.inventory), "--var", f"port={port}", "--var", "name=good"]
    shown = unharmed.run("plan", "diff", plan, *where)
    assert shown.returncode == 0, shown.stderr
    lines = [" ".join(line.split()) for line in shown.stdout.splitlines()]
    assert f"restore.expose ~ ports 127.0.0.1:{port} move from generation 1" in lines
    assert "restore.evict - unit generation 1, serving, once replaced" in lines


def test_disk_full_during_the_dump(unharmed: Project) -> None:
    with mounted(unharmed.state / "captures", "-t", "tmpfs", "-o", "size=2m", "tmpfs"):
        done = refused(typed(unharmed, "capture", name="full"), "criu.dump-failed")
        assert "cause: the disk is full" in done.stderr
        assert "the engine serves again" in done.stderr


def test_store_that_can_only_be_read(unharmed: Project) -> None:
    store = unharmed.state / "store"
    with mounted(store, "--bind", str(store)):
        subprocess.run(["mount", "-o", "remount,bind,ro", str(store)], check=True)
        done = typed(unharmed, "capture", name="read-only")
        refused(done, "store.read-only")
    shown = unharmed.run("artifact", "list", "--store", f"oci-layout:{store}", "--json")
    assert [entry["tags"] for entry in json.loads(shown.stdout)] == [["good"]]


def test_engine_that_is_never_ready(unharmed: Project) -> None:
    refused(typed(unharmed, "deaf", unit="deaf", port=free_port()), "engine.not-ready")


def test_engine_that_dies_during_its_capture(unharmed: Project) -> None:
    done = typed(unharmed, "dies", unit="dies", port=free_port(), name="dead")
    refused(done, "engine.died")
    shown = unharmed.run(
        "artifact", "inspect", "dead", "--store", f"oci-layout:{unharmed.state}/store"
    )
    refused(shown, "store.no-such-artifact")


def test_answer_that_differs(unharmed: Project) -> None:
    """The recorded answer is another one: the restored engine goes, this one serves on."""
    plan = unharmed.folder / "differs.yaml"
    text = restore_plan(unharmed.model)
    steps = """steps:
  - {id: stage, type: core.stage}
  - {id: restore, type: core.restore, needs: [stage], with: {artifact: good, through: hydrate}}
  - id: accept
    type: core.accept
    needs: [restore]
    with:
      generation: "{{ steps.restore.outputs.generation }}"
      expected: [{prompt: Once, text: no, tokens: [not, this], logprobs: [-1.0, -1.0]}]
"""
    plan.write_text(text.partition("steps:")[0] + steps)
    done = typed(unharmed, "differs", unit="other", port=free_port())
    refused(done, "accept.differs")
    assert "expected token 'not'" in done.stderr


def test_artifact_that_is_not_there(unharmed: Project) -> None:
    refused(
        typed(unharmed, "restore", name="nothing", unit="second", port=free_port()),
        "restore.artifact-missing",
    )


@pytest.mark.parametrize("damage", ["flipped", "cut", "gone"])
def test_image_that_is_damaged(unharmed: Project, damage: str) -> None:
    """The image has the file's name; nothing is started."""
    described = unharmed.run(
        "artifact", "inspect", "good", "--store", f"oci-layout:{unharmed.state}/store", "--json"
    )
    objects = json.loads(described.stdout)["descriptor"]["capsule"]["objects"]
    victim = max((o for o in objects if "/pages-" in o["path"]), key=lambda o: o["bytes"])
    blob = unharmed.state / "store/blobs/sha256" / victim["sha256"].removeprefix("sha256:")
    whole = blob.read_bytes()
    with rewritten(blob, damage):
        done = typed(unharmed, "restore", name="good", unit="second", port=free_port())
        said = refused(done, "store.blob-missing" if damage == "gone" else "store.blob-differs")
        assert victim["path"] in said.stderr
    assert blob.read_bytes() == whole


@contextlib.contextmanager
def rewritten(blob: Path, damage: str) -> Iterator[None]:
    """The blob damaged for a while; its inode is others' too, so that goes aside."""
    aside = blob.with_name("aside")
    blob.rename(aside)
    data = aside.read_bytes()
    if damage != "gone":
        blob.write_bytes(data[:-4096] if damage == "cut" else data[:5000] + b"\xff" + data[5001:])
    try:
        yield
    finally:
        blob.unlink(missing_ok=True)
        aside.rename(blob)


def test_two_applies_at_once(unharmed: Project) -> None:
    """While one run holds the unit, another is told which, and changes nothing."""
    first = unharmed.start(*command(unharmed, "capture", "--progress", "json", name="held"))
    until_step(first, "capture.quiesce")
    first.send_signal(signal.SIGSTOP)
    try:
        refused(typed(unharmed, "capture", name="second"), "lease.held")
    finally:
        first.send_signal(signal.SIGCONT)
    out, err = first.communicate(timeout=120)
    assert first.returncode == 0, out + err
    forget(unharmed, "held")


def test_connections_that_are_open_during_a_capture(unharmed: Project) -> None:
    """An idle one is closed, and the next request of that client is answered."""
    client = http.client.HTTPConnection("127.0.0.1", unharmed.port, timeout=60)
    client.request("GET", "/v1/models")
    assert client.getresponse().read()
    done = typed(unharmed, "capture", name="open")
    assert done.returncode == 0, done.stdout + done.stderr
    client.close()
    client.request("GET", "/v1/models")
    assert client.getresponse().status == 200
    forget(unharmed, "open")


def test_log_that_grew_since_the_capture(unharmed: Project) -> None:
    (log,) = unharmed.state.glob("units/engine/*/control/engine.log")
    with log.open("ab") as file:
        file.write(b"a line that was not there\n" * 10_000)
    port = free_port()
    done = typed(unharmed, "restore", name="good", unit="second", port=port)
    assert done.returncode == 0, done.stdout + done.stderr
    assert serves(port)
    evict(unharmed, "second")


def second_restore(project: Project, port: int) -> list[str]:
    given = {"name": "good", "unit": "second", "port": port}
    return command(project, "restore", "--progress", "json", **given)


@pytest.mark.parametrize("presses", [1, 2])
def test_ctrl_c(unharmed: Project, presses: int) -> None:
    """Once: what runs ends, no more is started. Twice: it is undone at once."""
    port = free_port()
    flags = ("--progress", "json")
    run = unharmed.start(
        *command(unharmed, "restore", *flags, name="good", unit="second", port=port)
    )
    until_step(run, "restore.restore")
    for _ in range(presses):
        run.send_signal(signal.SIGINT)
    out, err = run.communicate(timeout=120)
    assert run.returncode in {130, 0 if presses == 1 else 130}, out + err
    assert "Traceback" not in out + err
    evict(unharmed, "second")


def test_kill_9_then_resume(unharmed: Project) -> None:
    port = free_port()
    flags = ("--progress", "json")
    run = unharmed.start(
        *command(unharmed, "restore", *flags, name="good", unit="second", port=port)
    )
    until_step(run, "restore.restore")
    run.kill()
    run.communicate()
    done = unharmed.run("plan", "resume", "latest")
    assert done.returncode == 0, done.stdout + done.stderr
    assert serves(port)
    assert unharmed.run("runs", "verify", "latest").returncode == 0
    evict(unharmed, "second")


def test_journal_that_was_edited(unharmed: Project) -> None:
    folder = unharmed.folder / ".coldsnap" / "runs"
    latest = max(path.name for path in folder.iterdir() if not path.is_symlink())
    journal = folder / latest / "journal.jsonl"
    lines = journal.read_text().splitlines()
    lines[2] = lines[2].replace("stage", "stabe", 1)
    journal.write_text("\n".join(lines) + "\n")
    refused(unharmed.run("runs", "verify", latest), "journal.tampered")
    refused(unharmed.run("plan", "resume", latest), "journal.tampered")


# --- by hand ---------------------------------------------------------------------------------


@contextlib.contextmanager
def mounted(place: Path, *options: str) -> Iterator[None]:
    place.mkdir(exist_ok=True)
    subprocess.run(["mount", *options, str(place)], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", str(place)], check=True)


def evict(project: Project, unit: str) -> None:
    plan = ["plan", "apply", str(ROOT / "plans/evict.yaml"), "-i", str(project.inventory)]
    done = project.run(*plan, "--var", f"unit={unit}", "--yes")
    assert done.returncode == 0, done.stdout + done.stderr


def forget(project: Project, name: str) -> None:
    store = f"oci-layout:{project.state}/store"
    done = project.run("artifact", "delete", name, "--store", store, "--yes", "--collect")
    assert done.returncode == 0, done.stderr
