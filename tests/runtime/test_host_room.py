"""Room on the host, asked before anything is started."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
from runtime_target import HOST_PORT, Host

pytestmark = pytest.mark.criu


def ports(port: int) -> list[dict[str, object]]:
    return [{"name": "http", "inner": 8000, "host": "127.0.0.1", "port": port}]


def test_a_taken_port_is_told_before_anything_is_started(host: Host) -> None:
    manifest, _ = host.captured()
    with socket.create_server(("127.0.0.1", 0)) as other:
        taken = other.getsockname()[1]
        error = host.restore(manifest, ports=ports(taken)).error
        assert error["code"] == "expose.port-taken"
        assert str(taken) in error["message"]
    assert host.states() == {1: "serving"}
    host.restore(manifest, ports=ports(taken)).ok()


def test_the_units_own_port_is_not_taken(host: Host) -> None:
    manifest, _ = host.captured()
    host.unit("expose", generation=1).ok()
    with socket.create_connection(("127.0.0.1", HOST_PORT), 5):
        pass
    host.restore(manifest, ports=ports(HOST_PORT)).ok()


def test_too_little_memory_is_told_with_what_it_is_for(host: Host, tmp_path: Path) -> None:
    manifest, _ = host.captured()
    meminfo = tmp_path / "meminfo"
    meminfo.write_text("MemTotal: 1000 kB\nMemAvailable: 65536 kB\n")
    host.environment["COLDSNAP_MEMINFO"] = str(meminfo)
    error = host.restore(manifest).error
    assert error["code"] == "host.memory-short"
    assert "process image" in error["details"][0]
    assert host.states() == {1: "serving"}
    assert len(host.generations()) == 1
    meminfo.write_text(f"MemAvailable: {4 << 20} kB\n")
    host.restore(manifest).ok()
