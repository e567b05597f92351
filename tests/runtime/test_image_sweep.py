"""Generations that crashed let go of their images: at a stop, a collection, a sweep of packs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from runtime_target import Host
from test_image_modes import capture
from waiting import wait_for

from coldsnap.artifact.immutable import is_immutable

pytestmark = pytest.mark.criu


def restored(host: Host, artifact: str, unit: str = "u0", mode: str = "mmap") -> int:
    store = str(host.state / "store")
    request = {"unit": unit, "run": host.run, "store": store, "artifact": artifact}
    done = host.call("unit.restore", request={**request, "image_mode": mode}, timeout=90).result
    assert done["process_image"]["rung"] == mode
    return int(done["generation"])


def row(host: Host, unit: str, generation: int) -> dict[str, Any]:
    rows = host.call("unit.status", request={"unit": unit}).result["units"]
    return next(row for row in rows if row["generation"] == generation)


def crash(host: Host, unit: str, generation: int) -> None:
    os.kill(row(host, unit, generation)["pid"], signal.SIGKILL)
    wait_for(lambda: row(host, unit, generation)["state"] == "dead")


def stop(host: Host, unit: str, generation: int) -> None:
    request = {"unit": unit, "run": host.run, "generation": generation, "grace": 0}
    host.call("unit.stop", request=request).ok()


def immutable_blobs(host: Host) -> list[str]:
    blobs = host.state.glob("store/blobs/sha256/*")
    return [path.name for path in blobs if is_immutable(path)]


@pytest.mark.parametrize("mode", ["ext", "mmap"])
def test_a_stop_lets_go_of_what_crashed(host: Host, mode: str) -> None:
    artifact, _ = capture(host)
    generation = restored(host, artifact, mode=mode)
    crash(host, "u0", generation)
    assert list(host.state.glob("images/u0/*/images/pages-*.img"))
    assert list(host.state.glob("store/pins/*.json"))
    stop(host, "u0", generation)
    assert row(host, "u0", generation)["state"] == "stopped"
    assert not (host.state / "images" / "u0").exists()
    assert not list(host.state.glob("store/pins/*.json"))
    assert not immutable_blobs(host)
    assert host.states()[1] == "serving"


@pytest.mark.parametrize("verb", ["store.collect", "pack.gc"])
def test_a_sweep_spares_who_lives(host: Host, verb: str) -> None:
    artifact, _ = capture(host)
    living = restored(host, artifact, "u1")
    try:
        crashed = restored(host, artifact, "u2")
        crash(host, "u2", crashed)
        before = immutable_blobs(host)
        request = {"store": str(host.state / "store")} if verb == "store.collect" else {}
        if verb == "store.collect":
            told = host.call(verb, request={**request, "dry_run": True}).result
            assert told["ended"] == ["u2"]
            assert (host.state / "images" / "u2").exists()
        assert host.call(verb, request=request).result["ended"] == ["u2"]
        assert not (host.state / "images" / "u2").exists()
        assert len(list(host.state.glob("store/pins/*.json"))) == 1
        assert immutable_blobs(host) == before
        assert list(host.state.glob("images/u1/*/images/pages-*.img"))
        assert row(host, "u1", living)["state"] == "restored"
        assert host.call(verb, request=request).result["ended"] == []
    finally:
        stop(host, "u1", living)


def test_a_delete_says_who_holds_the_bytes(host: Host) -> None:
    artifact, _ = capture(host)
    living = restored(host, artifact, "u1")
    crashed = restored(host, artifact, "u2")
    crash(host, "u2", crashed)
    store = f"oci-layout:{host.state / 'store'}"
    words = ["artifact", "delete", artifact, "--yes", "--collect", "--store", store]
    try:
        said = subprocess.run(
            [Path(sys.executable).with_name("coldsnap"), *words],
            capture_output=True,
            text=True,
            check=False,
        )
        assert said.returncode == 0, said.stderr
        assert (
            f"0 B freed: generation {living} of unit u1 (restored) holds its bytes" in said.stdout
        )
        assert "u2" not in said.stdout, "it was let go of"
        assert not (host.state / "images" / "u2").exists()
    finally:
        stop(host, "u1", living)
    store = str(host.state / "store")
    assert host.call("store.collect", request={"store": store}).result["bytes"] > 0
    assert not list(host.state.glob("store/blobs/sha256/*"))
