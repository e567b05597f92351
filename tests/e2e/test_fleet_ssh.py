"""The fleet over real ssh: sshds in network namespaces (netns_hosts.sh)."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import statistics
import subprocess
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from fleet_contract import FactContract, JobContract, OperationContract, UploadContract
from fleet_places import Target, fact, is_running, later, rss_mib, shell, wait_for

from coldsnap.artifact.errors import ColdSnapError
from coldsnap.fleet import open_fleet

pytestmark = pytest.mark.ssh

SCRIPT = Path(__file__).parent / "netns_hosts.sh"
COUNT = 20
WORKER = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
PREFIX = f"csfl{chr(ord('a') + WORKER)}"
NET = f"198.18.{90 + WORKER}"


class Network:
    def __init__(self, state: Path) -> None:
        self.state = state
        self.inventory = str(state / "inventory.yaml")

    def __call__(self, *words: str) -> None:
        environment = {**os.environ, "STATE": str(self.state), "PREFIX": PREFIX, "NET": NET}
        subprocess.run([str(SCRIPT), *words], env=environment, check=True, timeout=120)

    def sessions(self, index: int) -> list[int]:
        """Pids of the sshd processes that serve a connection to that host."""
        folder = f"{self.state}/{PREFIX}{index}/sshd_config"
        listing = subprocess.run(
            ["ps", "-eo", "pid,ppid,args"], capture_output=True, text=True, check=True
        )
        rows = [line.split(None, 2) for line in listing.stdout.splitlines()[1:]]
        main = {row[0] for row in rows if folder in row[2] and "sshd" in row[2]}
        return [int(row[0]) for row in rows if row[1] in main and "sshd" in row[2]]


@pytest.fixture(scope="module")
def network():
    state = Path(f"/run/coldsnap-{PREFIX}")
    network = Network(state)
    try:
        network("down")  # what a killed run may have left
        network("up", str(COUNT))
        yield network
    finally:
        network("down")
        shutil.rmtree(state, ignore_errors=True)


@pytest.fixture(scope="module")
def fleet(network):
    with open_fleet(network.inventory) as fleet:
        yield fleet


@pytest.fixture
def target(fleet):
    # Below /run, which the hosts share with us; /tmp is their own.
    folder = Path(tempfile.mkdtemp(prefix="coldsnap-target-", dir="/run"))
    yield Target(fleet, fleet.host(f"{PREFIX}1"), folder)
    shutil.rmtree(folder)


class TestFacts(FactContract):
    pass


class TestOperations(OperationContract):
    pass


class TestJobs(JobContract):
    pass


class TestUploads(UploadContract):
    pass


def names(count: int) -> list[str]:
    return [f"{PREFIX}{n}" for n in range(1, count + 1)]


def inventory(folder: Path, **hosts: str) -> str:
    lines = [f"  {name}: {{connector: '@ssh', {fields}}}\n" for name, fields in hosts.items()]
    path = folder / "inventory.yaml"
    path.write_text("coldsnap: inventory/v1\nhosts:\n" + "".join(lines))
    return str(path)


def test_twenty_hosts_at_once_each_is_itself(fleet):
    assert fleet.connect(names(COUNT)) == {}
    asked = fact("Output", command="hostname; sleep 1")
    began = time.monotonic()
    assert fleet.prefetch({name: [asked] for name in names(COUNT)}) == {}
    assert time.monotonic() - began < 10
    for name in names(COUNT):
        assert fleet.host(name).ask(asked) == [name]


def test_a_step_over_twenty_hosts_costs_little_per_host(fleet):
    """Observe (5 facts, one round trip) and apply (one operation): at most 25 ms per host."""
    fleet.connect(names(COUNT))
    asked = [fact("Echo", text=f"t{n}") for n in range(5)]
    took = []
    with ThreadPoolExecutor(COUNT) as pool:
        for _ in range(7):
            began = time.perf_counter()
            assert fleet.prefetch(dict.fromkeys(names(COUNT), asked)) == {}
            list(pool.map(lambda name: shell(fleet.host(name), "true"), names(COUNT)))
            took.append((time.perf_counter() - began) / COUNT)
    assert statistics.median(took) < 0.025 * max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))


def test_bad_hosts_are_told_apart_and_block_nobody(network, tmp_path):
    listener = socket.create_server((f"{NET}.1", 0))  # accepts, says nothing
    silent = listener.getsockname()[1]
    other = tmp_path / "other"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", other], check=True)
    known = network.state / "known_hosts"
    changed = tmp_path / "changed"
    changed.write_text(f"{NET}.11 {(tmp_path / 'other.pub').read_text()}")
    key = f"key: {network.state}/id_ed25519, user: root"
    path = inventory(
        tmp_path,
        good=f"hostname: {NET}.11, {key}, known_hosts: {known}",
        refused=f"hostname: {NET}.1, port: 1, {key}, known_hosts: {known}",
        nowhere=f"hostname: {NET}.250, {key}, known_hosts: {known}, connect_timeout: 2s",
        silent=f"hostname: {NET}.1, port: {silent}, {key}, connect_timeout: 2s",
        unnamed=f"hostname: no-such-host.invalid, {key}",
        unknown=f"hostname: {NET}.11, {key}, known_hosts: {tmp_path}/empty",
        changed=f"hostname: {NET}.11, {key}, known_hosts: {changed}",
        keyless=f"hostname: {NET}.11, user: root, key: {other}, known_hosts: {known}",
        nokey=f"hostname: {NET}.11, user: root, key: {tmp_path}/none, known_hosts: {known}",
    )
    with open_fleet(path) as fleet:
        began = time.monotonic()
        errors = fleet.connect(fleet.select("all"))
        took = time.monotonic() - began
        assert {name: error.code for name, error in errors.items()} == {
            "refused": "host.unreachable",
            "nowhere": "host.unreachable",
            "silent": "host.unreachable",
            "unnamed": "host.unreachable",
            "unknown": "host.key-unknown",
            "changed": "host.key-changed",
            "keyless": "host.auth-failed",
            "nokey": "host.auth-failed",
        }
        for name, error in errors.items():
            assert error.where == name
            assert error.remedy
            assert NET in error.message or "invalid" in error.message
        assert took < 12
        asked = fact("Echo", text="x")
        again = fleet.prefetch({name: [asked] for name in fleet.select("all")})
        assert set(again) == set(errors)
        assert fleet.host("good").ask(asked) == "x"
        with pytest.raises(ColdSnapError) as caught:
            fleet.host("keyless").upload(other, "/tmp/x", sha256="0" * 64)
        assert caught.value.code == "host.auth-failed"
    listener.close()


def test_accept_new_takes_an_unknown_key_once(network, tmp_path):
    fields = f"hostname: {NET}.11, user: root, key: {network.state}/id_ed25519"
    known = tmp_path / "known"
    known.touch()
    path = inventory(tmp_path, h=f"{fields}, known_hosts: {known}, strict: accept-new")
    with open_fleet(path) as fleet:
        assert fleet.connect(["h"]) == {}
    assert NET in known.read_text()


def test_a_dropped_connection_is_made_again(target: Target, network):
    assert target.host.ask(fact("Echo", text="a")) == "a"
    for pid in network.sessions(1):
        os.kill(pid, signal.SIGKILL)
    assert target.host.ask(fact("Echo", text="b")) == "b"
    assert shell(target.host, "echo c").stdout == "c\n"


def test_a_fact_under_way_is_asked_again(target: Target, network):
    target.host.ask(fact("Echo", text="a"))

    def drop() -> None:
        for pid in network.sessions(1):
            os.kill(pid, signal.SIGKILL)

    with later(0.5, drop):
        assert target.host.ask(fact("Output", command="sleep 1.5; echo done")) == ["done"]


def test_a_command_under_way_is_an_error_that_says_its_end_is_unknown(target: Target, network):
    target.host.ask(fact("Echo", text="a"))

    def drop() -> None:
        for pid in network.sessions(1):
            os.kill(pid, signal.SIGKILL)

    with later(0.7, drop), pytest.raises(ColdSnapError) as caught:
        shell(target.host, "sleep 4061")
    assert (caught.value.code, caught.value.changed) == ("host.unreachable", True)
    wait_for(lambda: not is_running(target.host, "sleep 4061"))  # ended over a new connection


def test_a_job_under_way_is_rejoined(target: Target, network):
    dropped = threading.Event()

    def drop(event) -> None:
        if event.message == "step 2" and not dropped.is_set():
            dropped.set()
            for pid in network.sessions(1):
                os.kill(pid, signal.SIGKILL)

    result = target.host.perform(target.job("kept", steps=12, sleep=0.2), on_event=drop)
    assert dropped.is_set()
    assert result.result["session"]
    assert target.marks.read_text().count("begin") == 1


def test_a_host_that_goes_away_for_good_and_comes_back(fleet, network):
    host = fleet.host(f"{PREFIX}2")
    assert host.ask(fact("Echo", text="a")) == "a"
    network("kill", "2")
    with pytest.raises(ColdSnapError) as caught:
        host.ask(fact("Echo", text="b"))
    assert caught.value.code == "host.unreachable"
    assert "nothing listens" in caught.value.message
    network("start", "2")
    assert host.ask(fact("Echo", text="c")) == "c"


def test_a_cancelled_upload_leaves_no_process(target: Target):
    source = target.folder / "large"
    with source.open("wb") as file:
        file.truncate(8 << 30)
    with later(1.0, target.fleet.cancel), pytest.raises(ColdSnapError):
        target.host.upload(source, f"{target.folder}/there", sha256="1" * 64)
    wait_for(lambda: not is_running(target.host, f"dd of={target.folder}"))


def test_the_child_keeps_its_size_under_much_output(target: Target):
    shell(target.host, "head -c 30000000 /dev/urandom")
    pid = target.fleet.link.pid
    before = rss_mib(pid)
    for _ in range(3):
        shell(target.host, "head -c 60000000 /dev/urandom")
    assert rss_mib(pid) - before < 40
