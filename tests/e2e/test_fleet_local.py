"""The fleet on this machine."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest
from fleet_contract import FactContract, JobContract, OperationContract, UploadContract
from fleet_places import (
    ROOT,
    Target,
    descriptors,
    ends_at,
    fact,
    is_running,
    rss_mib,
    run,
    sha256,
    shell,
    wait_for,
)

from coldsnap.artifact.errors import ColdSnapError
from coldsnap.fleet import open_fleet
from coldsnap.fleet.link import CLOSE_SECONDS
from coldsnap.sdk.host import FactRequest


@pytest.fixture(scope="module")
def fleet():
    with open_fleet("@local") as fleet:
        yield fleet


@pytest.fixture
def target(fleet, tmp_path: Path) -> Target:
    return Target(fleet, fleet.host("local"), tmp_path)


class TestFacts(FactContract):
    pass


class TestOperations(OperationContract):
    pass


class TestJobs(JobContract):
    pass


class TestUploads(UploadContract):
    pass


def test_hundreds_of_steps_leak_neither_files_nor_memory(target: Target):
    def round_trip() -> None:
        target.host.ask_all([fact("Echo", text="x"), fact("Output", command="true")])
        shell(target.host, "echo x")

    for _ in range(20):
        round_trip()
    pid = target.fleet.link.pid
    assert pid is not None
    open_before, rss_before = descriptors(pid), rss_mib(pid)
    for _ in range(200):
        round_trip()
    assert descriptors(pid) <= open_before
    assert rss_mib(pid) - rss_before < 12


def test_a_child_that_is_killed_is_replaced(target: Target):
    target.host.ask(fact("Echo", text="x"))
    first = target.fleet.link.pid
    os.kill(first, signal.SIGKILL)
    assert target.host.ask(fact("Echo", text="y")) == "y"
    assert target.fleet.link.pid != first


def test_a_fact_that_kills_the_child_is_asked_once_more(target: Target, tmp_path):
    assert target.host.ask(fact("Suicide", once=str(tmp_path / "done"))) == "survived"


def test_a_job_survives_the_child_and_is_rejoined(target: Target):
    events = []

    def kill_at_second(event) -> None:
        events.append(event.message)
        if event.message == "step 1" and events.count("step 1") == 1:
            os.kill(target.fleet.link.pid, signal.SIGKILL)

    request = target.job("kept", steps=10, sleep=0.2)
    result = target.host.perform(request, on_event=kill_at_second)
    assert result.result["session"]
    assert target.marks.read_text().count("begin") == 1


def test_the_death_of_coldsnap_ends_commands_but_not_jobs(target: Target, tmp_path):
    program = tmp_path / "program.py"
    program.write_text(
        "import sys, threading, json\n"
        f"sys.path[:0] = [{str(ROOT / 'tests/fakes')!r}]\n"
        "from coldsnap.fleet import open_fleet\n"
        "from coldsnap.sdk.host import OperationRequest\n"
        "host = open_fleet('@local').host('local')\n"
        "def work(name, args, job):\n"
        "    host.perform(OperationRequest('fleet_pack:' + name, args, job))\n"
        "todo = json.load(sys.stdin)\n"
        "threading.Thread(target=work, args=('shell', {'command': 'sleep 4051'}, None)).start()\n"
        "work('verb', todo, todo['job'])\n"
    )
    request = target.job("orphan", steps=20, sleep=0.2)
    process = subprocess.Popen([sys.executable, str(program)], stdin=subprocess.PIPE, text=True)
    assert process.stdin is not None
    process.stdin.write(json.dumps(dict(request.args)))
    process.stdin.close()
    pid = target.job_pid()
    wait_for(lambda: is_running(target.host, "sleep 4051"))
    process.kill()
    process.wait()
    wait_for(lambda: not is_running(target.host, "sleep 4051"))
    assert not ends_at(pid)
    assert target.host.perform(request).result["pid"] == pid


def test_local_commands_have_our_environment_but_not_the_childs(target: Target):
    code = "import os; print(sorted(k for k in os.environ if 'COLDSNAP' in k or k == 'PYTHONPATH'))"
    before = {name for name in os.environ if "COLDSNAP" in name or name == "PYTHONPATH"}
    result = shell(target.host, f'{sys.executable} -c "{code}"')
    assert result.stdout.strip() == str(sorted(before))


def test_close_ends_everything_and_leaves_no_process(tmp_path):
    fleet = open_fleet("@local")
    fleet.host("local").ask(fact("Echo", text="x"))
    pid = fleet.link.pid
    began = time.monotonic()
    fleet.close()
    assert time.monotonic() - began < CLOSE_SECONDS, "it ended by itself"
    assert not Path(f"/proc/{pid}").exists()


def test_an_inventory_of_pyinfra(tmp_path):
    (tmp_path / "group_data").mkdir()
    (tmp_path / "group_data/web.py").write_text("colour = 'green'\nstate_dir = '/srv/x'\n")
    (tmp_path / "hosts.py").write_text(
        "import os\n"
        "assert 'gevent' in __import__('sys').modules  # we are in the child\n"
        "_far = ('far', {'ssh_hostname': '192.0.2.9', 'ssh_user': 'ops', '_sudo': True})\n"
        "web = ['@local', _far]\n"
        "db = (['@docker/pg'], {'role': 'db'})\n"
    )
    with open_fleet(str(tmp_path / "hosts.py")) as fleet:
        assert set(fleet.select("all")) == {"local", "far", "docker-pg"}
        assert set(fleet.select("web")) == {"local", "far"}
        far = fleet.host("far").entry
        assert far.data["ssh_hostname"] == "192.0.2.9"
        assert (far.vars["colour"], far.vars["state_dir"], far.has_sudo) == (
            "green",
            "/srv/x",
            True,
        )
        assert fleet.host("docker-pg").vars["role"] == "db"
        assert fleet.host("local").ask(FactRequest("pyinfra.facts.server:Os")) == "Linux"


@pytest.mark.parametrize("text", ["raise ValueError('broken')", "web = ['@chroot/x']", "def"])
def test_a_pyinfra_inventory_that_we_cannot_use(tmp_path, text):
    path = tmp_path / "hosts.py"
    path.write_text(text)
    with pytest.raises(ColdSnapError) as caught:
        open_fleet(str(path))
    assert caught.value.code == "inventory.invalid"


SUDOER = """
import sys
sys.path[:0] = [{fakes!r}]
from pathlib import Path
from coldsnap.fleet import open_fleet
from coldsnap.sdk.host import FactRequest, OperationRequest
from coldsnap.artifact.errors import ColdSnapError
host = open_fleet({inventory!r}).host("h")
try:
    print(host.ask(FactRequest("fleet_pack:Output", {{"command": "id -u"}})))
    shell = "fleet_pack:shell"
    print(host.perform(OperationRequest(shell, {{"command": "id -u"}})).stdout.strip())
    print(host.upload(Path({source!r}), {remote!r}, sha256={digest!r}, mode=0o600))
    try:
        host.perform(OperationRequest(shell, {{"command": "sleep 4071"}}), timeout=0.7)
    except ColdSnapError as error:
        print(error.code)
except ColdSnapError as error:
    print(error.code)
"""


@pytest.mark.parametrize("rule", ["ALL=(ALL) NOPASSWD: ALL", "ALL=(ALL) ALL"])
def test_sudo_with_and_without_a_password(target: Target, rule: str):
    """As the user nobody, with a sudoers file of our own in a private mount namespace."""
    if os.geteuid() != 0 or shutil.which("sudo") is None:
        pytest.skip("needs root, and sudo")
    folder = Path(tempfile.mkdtemp(prefix="coldsnap-sudo-", dir="/run"))
    try:
        folder.chmod(0o755)
        source, remote = folder / "source", folder / "for root" / "file"
        source.write_bytes(b"x" * 100_000)
        (folder / "inventory.yaml").write_text(
            "coldsnap: inventory/v1\nhosts: {h: {connector: '@local', vars: {sudo: true}}}\n"
        )
        (folder / "sudoers").write_text(f"nobody {rule}\n")
        (folder / "sudoers").chmod(0o440)
        (folder / "program.py").write_text(
            SUDOER.format(
                fakes=str(ROOT / "tests/fakes"),
                inventory=str(folder / "inventory.yaml"),
                source=str(source),
                remote=str(remote),
                digest=sha256(source),
            )
        )
        script = (
            # Reading everything lets it use a Python below root's home, and nothing else.
            'mount --bind "$1/sudoers" /etc/sudoers && '
            "exec setpriv --reuid=65534 --regid=65534 --clear-groups "
            "--inh-caps=+dac_read_search --ambient-caps=+dac_read_search "
            '"$2" "$1/program.py"'
        )
        words = ("sh", "-c", script, "sh", str(folder), sys.executable)
        done = run("unshare", "--mount", "--propagation=private", *words, cwd="/")
        if "NOPASSWD" not in rule:
            assert done.stdout.splitlines() == ["host.sudo-refused"]
            return
        assert done.stdout.splitlines() == ["['0']", "0", "True", "host.timeout"]
        assert (remote.stat().st_uid, remote.stat().st_mode & 0o777) == (0, 0o600)
        assert not is_running(target.host, "sleep 4071")
    finally:
        shutil.rmtree(folder)
