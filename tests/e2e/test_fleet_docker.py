"""The fleet in a running container of a real docker daemon."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from fleet_contract import FactContract, JobContract, OperationContract, UploadContract
from fleet_places import ROOT, Target, fact, output, run, sha256, shell

from coldsnap.fleet import open_fleet

pytestmark = pytest.mark.docker

IMAGE = "coldsnap-test/empty"


@pytest.fixture(scope="module")
def shared():
    folder = Path(tempfile.mkdtemp(prefix="coldsnap-docker-", dir="/run"))
    yield folder
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
def container(shared):
    """An empty image over this machine's own programs, read-only: nothing is downloaded."""
    subprocess.run(["docker", "import", "-", IMAGE], input=b"\0" * 10240, check=True)
    ours = {"/usr", "/bin", "/lib", "/lib64", "/etc", str(ROOT), sys.prefix, sys.base_prefix}
    mounts = [f"--volume={path}:{path}:ro" for path in sorted(ours) if Path(path).exists()]
    started = run(
        "docker", "run", "-d", "--rm", "--network=none", "--tmpfs=/tmp", "--init", *mounts,
        f"--volume={shared}:{shared}", IMAGE, "sleep", "infinity",
    )  # fmt: skip
    identity = started.stdout.strip()
    yield identity
    subprocess.run(["docker", "kill", identity], check=True, capture_output=True)


@pytest.fixture(scope="module")
def fleet(container, shared):
    path = shared / "inventory.yaml"
    path.write_text(
        "coldsnap: inventory/v1\n"
        "hosts:\n"
        f"  box: {{connector: '@docker', container: {container[:12]}}}\n"
        "  none: {connector: '@docker', container: no-such-container}\n"
    )
    with open_fleet(str(path)) as fleet:
        yield fleet


@pytest.fixture
def target(fleet, shared) -> Target:
    return Target(fleet, fleet.host("box"), Path(tempfile.mkdtemp(dir=shared)))


class TestFacts(FactContract):
    pass


class TestOperations(OperationContract):
    pass


class TestJobs(JobContract):
    pass


class TestUploads(UploadContract):
    pass


def test_a_container_that_is_not_there(fleet):
    (error,) = fleet.connect(["box", "none"]).values()
    assert (error.code, error.where) == ("host.unreachable", "none")
    assert "no-such-container" in error.message


def test_a_tmpfs_of_the_container_is_reached_too(target: Target, tmp_path):
    """The archive API writes below a tmpfs, where nobody in the container sees it."""
    source = tmp_path / "source"
    source.write_bytes(b"x" * 100_000)
    assert target.host.upload(source, "/tmp/deep/file", sha256=sha256(source)) is True
    assert output(target.host, "sha256sum </tmp/deep/file")[0][:64] == sha256(source)
    assert target.host.upload(source, "/tmp/deep/file", sha256=sha256(source)) is False


def test_closing_leaves_the_container_and_commits_no_image(container, shared):
    with open_fleet(str(shared / "inventory.yaml")) as fleet:
        shell(fleet.host("box"), "true")
    assert run("docker", "inspect", "-f", "{{.State.Running}}", container).stdout == "true\n"
    images = run("docker", "images", "-aq").stdout.split()
    origins = run("docker", "inspect", "-f", "{{.Container}}", *images).stdout.split()
    assert container not in origins


def test_many_facts_cost_one_docker_exec(target: Target):
    """Docker gives each exec a session of its own."""
    session = [fact("Output", command=f"cut -d' ' -f6 /proc/self/stat # {n}") for n in range(20)]
    together = target.host.ask_all(session)
    assert len({tuple(lines) for lines in together}) == 1
    assert target.host.ask(fact("Output", command="cut -d' ' -f6 /proc/self/stat")) != together[0]
