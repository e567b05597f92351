"""Files that a user names: plans that are pipes, outputs that are something else."""

from __future__ import annotations

import json
import os
import re
import stat
import subprocess
from pathlib import Path

import pytest

from coldsnap.artifact import canonical

PLAN = """\
coldsnap: plan/v1
name: look
steps: [{id: look, type: core.stage}]
"""
INVENTORY = """\
coldsnap: inventory/v1
hosts:
  h:
    connector: "@fake"
    facts:
      coldsnap_core.facts:PackStaged:
        {staged: true, valid: true, python: "3.13", uid: 0, writable: true}
"""


@pytest.fixture
def project(cli) -> Path:
    (cli.project / "plan.yaml").write_text(PLAN)
    (cli.project / "hosts.yaml").write_text(INVENTORY)
    return cli.project


def diff(cli, *more: str, code: int = 0):
    return cli("plan", "diff", "plan.yaml", "-i", "hosts.yaml", *more, code=code)


def test_plan_and_inventory_may_come_from_pipes(cli, project) -> None:
    script = 'exec "$@" plan diff <(cat plan.yaml) -i <(cat hosts.yaml)'
    done = subprocess.run(
        ["bash", "-c", script, "bash", *cli.argv()],
        cwd=project,
        env=cli.env,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "No changes" in done.stdout


def test_a_pipe_that_nobody_writes_to_is_told(cli, project) -> None:
    os.mkfifo(project / "pipe.yaml")
    done = cli("plan", "validate", "pipe.yaml", code=1, timeout=60)
    assert "pipe.yaml cannot be read: nobody writes to this pipe" in done.err


@pytest.mark.parametrize("out", ["plan.yaml", "hosts.yaml"])
def test_out_overwrites_nothing_but_saved_plans(cli, project, out) -> None:
    before = (project / out).read_text()
    done = diff(cli, "--out", out, code=1)
    assert done.err.startswith("error[plan.out-exists]: ")
    assert (project / out).read_text() == before
    diff(cli, "--out", "saved.plan")
    diff(cli, "--out", "saved.plan")
    assert cli("plan", "graph", "plan.yaml", "--out", "plan.yaml", code=1).err.startswith(
        "error[plan.out-exists]"
    )
    assert (project / "plan.yaml").read_text() == PLAN


def test_an_output_that_is_a_device_stays_one(cli, project) -> None:
    device = project / "null"
    try:
        os.mknod(device, 0o666 | stat.S_IFCHR, os.makedev(1, 3))
    except PermissionError:
        pytest.skip("only root makes device nodes")
    diff(cli, "--out", "null")
    cli("plan", "graph", "plan.yaml", "--out", "null")
    assert stat.S_ISCHR(device.stat().st_mode)


def test_an_output_behind_a_link_is_replaced_there(cli, project) -> None:
    (project / "link").symlink_to("graph.txt")
    (project / "graph.txt").write_text("old")
    cli("plan", "graph", "plan.yaml", "--out", "link")
    assert (project / "link").is_symlink()
    assert "look" in (project / "graph.txt").read_text()


def test_a_plan_edited_since_it_was_saved_is_stale(cli, project) -> None:
    diff(cli, "--out", "saved.plan")
    (project / "plan.yaml").write_text(PLAN + "# edited\n")
    done = cli("plan", "apply", "saved.plan", code=4)
    assert "1 thing is not as it was when it was saved" in done.err
    assert "plan.yaml was edited since" in done.err
    (project / "plan.yaml").unlink()
    cli("plan", "apply", "saved.plan")


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: data[:200],
        lambda data: data.replace(b"look", b"loop", 1),
        lambda _data: b"{}",
        lambda _data: b'{"a":' * 50_000,
        lambda _data: b"{\xff\0",
    ],
    ids=["cut", "edited", "empty", "deep", "bytes"],
)
def test_a_damaged_saved_plan_is_refused(cli, project, damage) -> None:
    diff(cli, "--out", "saved.plan")
    path = project / "saved.plan"
    path.write_bytes(damage(path.read_bytes()))
    done = cli("plan", "apply", "saved.plan", code=1)
    assert done.err.startswith(("error[plan.not-saved]", "error[plan.saved-damaged]"))


@pytest.mark.parametrize(
    "change",
    [
        lambda body: body["plan"].pop("variables"),
        lambda body: body["plan"].update(text=5),
        lambda body: body["inventory"].pop("path"),
        lambda body: body.update(instances=[{}]),
    ],
    ids=["no-variables", "text", "no-inventory", "instances"],
)
def test_a_saved_plan_with_a_digest_of_its_own_is_refused(cli, project, change) -> None:
    diff(cli, "--out", "saved.plan")
    path = project / "saved.plan"
    body = json.loads(path.read_bytes())
    del body["sha256"]
    change(body)
    body["sha256"] = canonical.digest(body)
    path.write_text(canonical.dumps(body))
    assert cli("plan", "apply", "saved.plan", code=1).err.startswith("error[plan.saved-damaged]")


@pytest.mark.parametrize(
    "arguments",
    [
        "plan validate {}",
        "plan diff plan.yaml -i {}",
        "plan diff plan.yaml -i hosts.yaml --out {}",
        "plan diff plan.yaml --project {}",
        "plan graph plan.yaml --out {}",
        "plan validate plan.yaml --var-file {}",
        "status -i {}",
        "artifact list --store oci-layout:/{}",
        "restore --request-json {}",
        "payload pack {}",
        "payload verify {}",
    ],
)
def test_a_name_that_no_file_can_have(cli, project, arguments: str) -> None:
    """The reason is the system's, at whatever place it was met, and no defect of ours."""
    done = cli(*arguments.format("a" * 300).split(), "--json", code=1)
    told = json.dumps(done.json)
    assert "too long" in told
    assert "internal." not in told


@pytest.mark.parametrize("out", [".", "/", "", "loop"])
def test_an_output_that_is_no_file(cli, project, out: str) -> None:
    (project / "loop").symlink_to("loop")
    for verb in (["diff", "plan.yaml", "-i", "hosts.yaml"], ["graph", "plan.yaml"]):
        done = cli("plan", *verb, "--out", out, code=1)
        assert re.search(r"error\[(file\.unwritable|plan\.out-exists)\]", done.err), done.err
