"""The main job on the reference engine, from outside: capture, kill, restore, the same answer."""

from __future__ import annotations

import http.client
import json
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from project import ROOT, Project, alive, complete, free_port, serves, until_step

pytestmark = [pytest.mark.criu, pytest.mark.timeout(900)]

CAPTURE, RESTORE = "reference/capture.yaml", "reference/restore.yaml"


@pytest.fixture
def project(tmp_path: Path, model: Path) -> Iterator[Project]:
    made = Project(tmp_path, model)
    yield made
    made.clean()
    assert not made.live()


@pytest.fixture(scope="session")
def store(tmp_path_factory: pytest.TempPathFactory, model: Path) -> Path:
    """A store with one capture; a cold start is dear, so the tests share it."""
    made = Project(tmp_path_factory.mktemp("store"), model)
    try:
        done = made.apply(CAPTURE)
        assert done.returncode == 0, done.stderr
    finally:
        made.clean()
    return made.state / "store"


@pytest.fixture
def captured(project: Project, store: Path) -> Project:
    """A project with a copy of that store, whose engine serves (restored)."""
    project.state.mkdir()
    shutil.copytree(store, project.state / "store", symlinks=True)
    done = project.apply(RESTORE)
    assert done.returncode == 0, done.stderr
    return project


COLD = """
coldsnap: plan/v1
name: cold
vars: {{model: {{type: path}}, port: {{type: int}}}}
engine: reference
model: {{id: reference, path: "{{{{ vars.model }}}}"}}
units:
  - id: engine
    command: [{python}, -m, coldsnap_reference_engine, serve, --model, "{{{{ vars.model }}}}",
              --served-model-name, reference, --tune-seconds, "0"]
    ports: [{{inner: 8000, port: "{{{{ vars.port }}}}"}}]
steps: [{{uses: reference.cold}}]
"""


@pytest.fixture
def serving(project: Project, store: Path) -> Project:
    """An untuned engine that was started cold serves, and a restore of the capture is pending."""
    project.state.mkdir()
    shutil.copytree(store, project.state / "store", symlinks=True)
    plan = project.folder / "cold.yaml"
    plan.write_text(COLD.format(python=sys.executable))
    done = project.apply(str(plan))
    assert done.returncode == 0, done.stderr
    return project


def text_of(project: Project) -> str:
    """What it says; a cold start tunes anew, so the last bits of log-probabilities may differ."""
    return str(complete(project.port)[0])


def mounts(project: Project) -> list[str]:
    lines = Path("/proc/self/mounts").read_text().splitlines()
    return [line for line in lines if str(project.folder) in line]


def test_capture_kill_restore_same_answer(project: Project) -> None:
    done = project.apply(CAPTURE)
    assert done.returncode == 0, done.stderr
    assert serves(project.port), "after a capture the unit serves on"
    before = complete(project.port)
    project.kill_units()
    assert not serves(project.port)
    done = project.apply(RESTORE)
    assert done.returncode == 0, done.stderr
    assert "same answer: yes" in done.stdout + done.stderr
    assert complete(project.port) == before
    again = project.apply(RESTORE)
    assert again.returncode == 0, again.stderr
    assert "nothing to do" in again.stdout
    project.clean()
    assert not mounts(project), "nothing leaks into the host's mount table"


def test_second_capture_has_nothing_to_do(captured: Project) -> None:
    again = captured.apply(CAPTURE)
    assert again.returncode == 0, again.stderr
    assert "nothing to do" in again.stdout
    clean = captured.diff(CAPTURE, "--detailed-exitcode")
    assert clean.returncode == 0, clean.stdout
    changed = captured.diff(CAPTURE, "--detailed-exitcode", tokens=9)
    assert changed.returncode == 2, changed.stdout
    assert "to create" in changed.stdout


def test_ten_restores_from_one_image(captured: Project) -> None:
    before = complete(captured.port)
    for _ in range(10):
        captured.kill_units()
        done = captured.apply(RESTORE)
        assert done.returncode == 0, done.stderr
        assert complete(captured.port) == before


def test_two_replicas_at_once(captured: Project) -> None:
    before = complete(captured.port)
    captured.kill_units()
    other = free_port()
    first = captured.start(*captured.plan("apply", RESTORE, "--yes", unit="first"))
    second = captured.start(*captured.plan("apply", RESTORE, "--yes", unit="second", port=other))
    for run in (first, second):
        out, err = run.communicate(timeout=240)
        assert run.returncode == 0, out + err
    assert complete(captured.port) == before
    assert complete(other) == before


def test_restore_beside_a_serving_unit_never_refuses(serving: Project) -> None:
    """The new generation is accepted before the old one goes; the port answers all the time."""
    before = text_of(serving)
    (record,) = serving.live()
    run = serving.start(*serving.plan("apply", RESTORE, "--yes"))
    refused = 0
    while run.poll() is None:
        refused += not serves(serving.port)
        time.sleep(0.02)
    out, err = run.communicate()
    assert run.returncode == 0, out + err
    assert refused == 0
    assert text_of(serving) == before
    assert not alive(record["init"]["pid"]), "the replaced generation is gone"
    assert len(serving.live()) == 1


def test_the_image_holds_no_weights(captured: Project) -> None:
    listed = captured.run(
        "artifact", "list", "--store", f"oci-layout:{captured.state}/store", "--json"
    )
    assert listed.returncode == 0, listed.stderr
    weights = next(captured.model.glob("*.safetensors")).read_bytes()
    probes = [weights[at : at + 64] for at in range(1 << 20, len(weights) - 64, len(weights) // 7)]
    blobs = list((captured.state / "store" / "blobs" / "sha256").iterdir())
    pages = [b for b in blobs if b.stat().st_size > 1 << 20]
    assert pages
    packs = 0
    for blob in pages:
        data = blob.read_bytes()
        found = sum(probe in data for probe in probes)
        packs += found > 0
    assert packs <= 1, "weights are in the payload pack and nowhere else"


def pages_of(project: Project) -> Path:
    """The largest page file of the process image: only the payload pack is larger."""
    blobs = (project.state / "store" / "blobs" / "sha256").iterdir()
    return sorted(blobs, key=lambda path: path.stat().st_size)[-2]


def test_flipped_byte_is_refused_before_criu_sees_it(serving: Project) -> None:
    victim = pages_of(serving)
    victim.chmod(0o600)
    with victim.open("r+b") as file:
        file.seek(4096)
        byte = file.read(1)
        file.seek(4096)
        file.write(bytes([byte[0] ^ 1]))
    victim.chmod(0o400)
    done = serving.apply(RESTORE)
    assert done.returncode == 1, done.stdout + done.stderr
    assert victim.name[:12] in done.stderr or "digest" in done.stderr
    assert "Traceback" not in done.stderr
    assert serves(serving.port), "what served before still serves"


@pytest.mark.parametrize("what", ["truncated", "missing"])
def test_cut_image_is_refused(serving: Project, what: str) -> None:
    victim = pages_of(serving)
    if what == "missing":
        victim.unlink()
    else:
        victim.chmod(0o600)
        with victim.open("r+b") as file:
            file.truncate(victim.stat().st_size - 4096)
    done = serving.apply(RESTORE)
    assert done.returncode == 1, done.stdout + done.stderr
    assert serves(serving.port)


@pytest.mark.parametrize("phase", ["launch", "accept", "quiesce", "checkpoint", "publish"])
@pytest.mark.parametrize("verb", ["resume", "rollback"])
def test_kill_9_of_coldsnap_in_a_capture(project: Project, phase: str, verb: str) -> None:
    run = project.start(*project.plan("apply", CAPTURE, "--yes", "--progress", "json"))
    _kill_at(run, f"capture.{phase}")
    done = project.run(*_again(verb, project))
    assert done.returncode == 0, done.stdout + done.stderr
    checked = project.run("runs", "verify", _latest(project))
    assert checked.returncode == 0, checked.stderr
    if verb == "resume":
        before = complete(project.port)
        project.kill_units()
        assert project.apply(RESTORE).returncode == 0
        assert complete(project.port) == before
    else:
        assert not project.live(), "rollback stops what the run started"
    assert not list(project.state.glob("leases/*.json"))


def _again(verb: str, project: Project) -> list[str]:
    """`plan resume RUN` or `plan rollback RUN --yes` of the last run."""
    return ["plan", verb, _latest(project), *(["--yes"] if verb == "rollback" else [])]


@pytest.mark.parametrize("phase", ["restore", "hydrate", "accept", "expose", "evict"])
@pytest.mark.parametrize("verb", ["resume", "rollback"])
def test_kill_9_of_coldsnap_in_a_restore(serving: Project, phase: str, verb: str) -> None:
    before = text_of(serving)
    plan = stepwise(serving) if phase in {"hydrate", "accept"} else RESTORE
    run = serving.start(*serving.plan("apply", plan, "--yes", "--progress", "json"))
    _kill_at(run, f"restore.{phase}")
    done = serving.run(*_again(verb, serving))
    assert done.returncode in ({0} if verb == "resume" else {0, 3}), done.stdout + done.stderr
    assert text_of(serving) == before
    assert len(serving.live()) == 1


def stepwise(project: Project) -> str:
    """The restore plan with a job on the target for each step, as the template can be told."""
    text = (ROOT / "plans" / RESTORE).read_text()
    path = project.folder / "stepwise.yaml"
    path.write_text(text.replace("artifact: reference,", "artifact: reference, through: restore,"))
    assert "through" in path.read_text()
    return str(path)


def test_a_restore_goes_through_to_the_acceptance_in_one_job(captured: Project) -> None:
    """Its later steps find their work done, and say the same as when they do it themselves."""
    told = {}
    for plan in (RESTORE, stepwise(captured)):
        captured.kill_units()
        done = captured.apply(plan, "--json")
        assert done.returncode == 0, done.stderr
        told[plan] = json.loads(done.stdout)
    one, steps = (told[plan]["outputs"] for plan in told)
    assert (told[RESTORE]["changed"] + 2) == told[stepwise(captured)]["changed"]
    for step, name in (("hydrate", "bytes"), ("accept", "answers"), ("accept", "same")):
        values = [out[f"restore.{step}"][0]["outputs"][name] for out in (one, steps)]
        assert values[0] == values[1]
        assert values[0]
    accepted = one["restore.accept"][0]["outputs"]
    assert 0 < accepted["first_token_seconds"] < 60
    spans = [span["name"] for span in one["restore.restore"][0]["outputs"]["timing"]["spans"]]
    order = ["verify", "restore", "criu-restore", "hydrate", "ready", "first-token", "answer"]
    assert [name for name in spans if name in order] == order
    last = told[RESTORE]["run"]
    mine = {path.name for path in (captured.state / "jobs").glob(f"{last}.*")}
    mine -= {job for job in mine if ".evict." in job}  # lets go of the generation that was killed
    assert mine == {f"{last}.restore.restore.engine", f"{last}.restore.expose.engine"}


def test_a_bench_compares_cold_starts_with_restores(captured: Project) -> None:
    plans = [str(ROOT / "plans" / name) for name in (CAPTURE, RESTORE)]
    flags = ["--var", f"model={captured.model}", "--var", f"port={captured.port}"]
    out, section = captured.folder / "bench.json", captured.folder / "bench.md"
    counts = ["--cold", "1", "--restores", "2", "--json", "--yes", "--caches-warm"]
    counts += ["--page-cache", "both", "--cold-dropped", "0"]
    counts += ["--out", str(out), "--markdown", str(section)]
    where = ["-i", str(captured.inventory)]
    done = captured.run("bench", "cold-vs-restore", *plans, *flags, *counts, *where, timeout=600)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert json.loads(out.read_text()) == told
    assert told["complete"] is True
    warm, dropped = told["units"]
    assert (warm["page_cache"], dropped["page_cache"]) == ("warm", "dropped")
    assert dropped["cold_page_cache"] == "warm", "no cold start was made with it dropped"
    assert (len(warm["cold"]), len(warm["restored"])) == (1, 2)
    assert warm["same_answer"] is dropped["same_answer"] is True
    assert warm["ratio"] > 1, "a restore is faster than a cold start"
    names = [phase["path"][0] for phase in warm["restored"][0]["phases"] if len(phase["path"]) == 1]
    assert names == ["runtime-start", "verify", "restore", "hydrate", "ready", "first-token"]
    assert str(captured.folder) not in section.read_text(), "a document names no places"
    assert "**restore to first token**" in section.read_text()
    assert serves(captured.port), "the units serve afterwards"


def _kill_at(run: subprocess.Popen[str], step: str) -> None:
    """kill -9 as soon as `step` is reported as started."""
    until_step(run, step)
    run.send_signal(signal.SIGKILL)
    run.wait(30)


def _latest(project: Project) -> str:
    folder = project.folder / ".coldsnap" / "runs"
    return max(path.name for path in folder.iterdir() if path.is_dir() and not path.is_symlink())


def test_two_applies_at_once_the_second_is_refused(project: Project) -> None:
    first = project.start(*project.plan("apply", CAPTURE, "--yes", "--progress", "json"))
    until_step(first, "capture.accept")
    other = Project(project.folder / "other", project.model)
    other.inventory.write_text(project.inventory.read_text())
    other.state = project.state
    second = other.run(*other.plan("apply", RESTORE, "--yes", port=project.port, unit="engine"))
    out, err = first.communicate(timeout=240)
    assert first.returncode == 0, out + err
    assert second.returncode in {1, 3}


def test_open_client_connection_during_capture(project: Project) -> None:
    """A request in flight is drained, an idle keep-alive connection does not stop the dump."""
    started = project.start(*project.plan("apply", CAPTURE, "--yes", "--progress", "json"))
    until_step(started, "capture.accept")
    client = http.client.HTTPConnection("127.0.0.1", project.port, timeout=60)
    client.request("GET", "/v1/models")
    assert client.getresponse().read()
    out, err = started.communicate(timeout=240)
    assert started.returncode == 0, out + err
    assert serves(project.port)


def test_new_callers_wait_while_a_capture_holds_the_engine(serving: Project) -> None:
    """Nobody is refused and nobody sees a 503: who comes during the pause waits for its end."""
    plan = serving.folder / "hold.yaml"
    plan.write_text(
        COLD.format(python=sys.executable).replace(
            "steps: [{uses: reference.cold}]",
            "steps: [{uses: reference.capture, with: {name: held}}]",
        )
    )
    run = serving.start(*serving.plan("apply", str(plan), "--yes"))
    failures = []
    while run.poll() is None:
        try:
            complete(serving.port, tokens=1)
        except OSError as error:
            failures.append(error)
    out, err = run.communicate()
    assert run.returncode == 0, out + err
    assert not failures


def test_ctrl_c_once_leaves_the_engine_serving(serving: Project) -> None:
    before = text_of(serving)
    run = serving.start(*serving.plan("apply", RESTORE, "--yes", "--progress", "json"))
    until_step(run, "restore.restore")
    run.send_signal(signal.SIGINT)
    out, err = run.communicate(timeout=120)
    assert run.returncode == 130, out + err
    assert text_of(serving) == before
    assert not list(serving.state.glob("leases/*.json"))


def test_ctrl_c_twice_stops_at_once(serving: Project) -> None:
    before = text_of(serving)
    run = serving.start(*serving.plan("apply", RESTORE, "--yes", "--progress", "json"))
    until_step(run, "restore.restore")
    run.send_signal(signal.SIGINT)
    time.sleep(0.1)
    run.send_signal(signal.SIGINT)
    out, err = run.communicate(timeout=60)
    assert run.returncode == 130, out + err
    assert text_of(serving) == before
    done = serving.run("plan", "rollback", _latest(serving), "--yes")
    assert done.returncode in {0, 1, 3}
    assert text_of(serving) == before


def test_answer_that_differs_after_restore(serving: Project) -> None:
    """The restored engine is stopped, the reason told, the old one serves."""
    before = text_of(serving)
    wrong = serving.folder / "wrong.yaml"
    wrong.write_text(
        f"""
coldsnap: plan/v1
name: wrong
engine: reference
driver: criu
model: {{id: reference, path: {serving.model}}}
units: [{{id: engine, ports: [{{name: http, inner: 8000, port: {serving.port}}}]}}]
steps:
  - {{id: stage, type: core.stage}}
  - {{id: restore, type: core.restore, needs: [stage], with: {{artifact: reference}}}}
  - id: hydrate
    type: core.hydrate
    needs: [restore]
    with: {{generation: "{{{{ steps.restore.outputs.generation }}}}"}}
  - id: accept
    type: core.accept
    needs: [hydrate, restore]
    with:
      generation: "{{{{ steps.restore.outputs.generation }}}}"
      expected:
        - {{prompt: Once, text: not this, tokens: [not, this], logprobs: [-1.0, -1.0]}}
"""
    )
    done = serving.run("plan", "apply", str(wrong), "-i", str(serving.inventory), "--yes")
    assert done.returncode in {1, 3}, done.stdout + done.stderr
    assert "accept.differs" in done.stderr
    assert text_of(serving) == before


def test_tampered_journal_is_reported(captured: Project) -> None:
    journal = captured.folder / ".coldsnap" / "runs" / _latest(captured) / "journal.jsonl"
    lines = journal.read_text().splitlines()
    lines[3] = lines[3].replace("restore", "rest0re", 1)
    assert "rest0re" in lines[3]
    journal.write_text("\n".join(lines) + "\n")
    checked = captured.run("runs", "verify", _latest(captured))
    assert checked.returncode == 1
    assert "journal" in checked.stderr
