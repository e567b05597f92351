"""Where the time goes, as the runtime tells it: engines' spans, cold starts, the page cache."""

from __future__ import annotations

import ctypes
import mmap
import os
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from runtime_target import Host, Runtime, call, descriptor

from coldsnap.artifact.errors import ColdSnapError
from coldsnap_runtime.engine_spans import take_spans
from coldsnap_runtime.log_phases import LogPhases, phases_asked
from coldsnap_runtime.software import package_versions
from coldsnap_runtime.timing import Timing

NOW = time.clock_gettime(time.CLOCK_BOOTTIME)
TOLD = [
    {"name": "wake", "start": NOW, "seconds": 0.2},
    {
        "name": "payload",
        "start": NOW + 0.1,
        "seconds": 0.05,
        "parent": "wake",
        "attributes": {"bytes": 17_000_000_000, "provider": "native", "nested": {"no": 1}},
    },
]
NONSENSE: list[Any] = [
    None,
    {"name": 7, "start": NOW, "seconds": 1.0},
    {"name": "late", "start": "soon", "seconds": 1.0},
    {"name": "back", "start": NOW, "seconds": -1.0},
    {"name": "never", "start": NOW, "seconds": float("inf")},
    {"name": "", "start": NOW, "seconds": 1.0},
]


def spans(timing: Timing) -> dict[str, dict[str, Any]]:
    return {span["name"]: span for span in timing.to_json()["spans"]}


def test_an_engines_spans_lie_below_the_call_that_they_were_told_in() -> None:
    timing = Timing("u0")
    with timing.span("POST /resume"):
        answer = take_spans({"bytes": 1, "spans": [*TOLD, *NONSENSE]}, timing)
    assert answer == {"bytes": 1}, "they are not kept twice"
    found = spans(timing)
    assert set(found) == {"POST /resume", "wake", "payload"}
    assert found["wake"]["parent"] == found["POST /resume"]["id"]
    assert found["payload"]["parent"] == found["wake"]["id"]
    assert found["payload"]["attributes"] == {"bytes": "17000000000", "provider": "native"}
    assert found["payload"]["start_offset_seconds"] == pytest.approx(NOW + 0.1, abs=1e-5)


@pytest.mark.parametrize("answer", [None, [], {"spans": 3}, {"spans": {"a": 1}}, "text"])
def test_other_answers_stay_as_they_are(answer: Any) -> None:
    timing = Timing("u0")
    assert take_spans(answer, timing) == answer
    assert not timing.to_json()["spans"]


def test_no_engine_fills_a_receipt() -> None:
    timing = Timing("u0")
    take_spans({"spans": [{**TOLD[0], "name": f"s{n}" * 100} for n in range(1000)]}, timing)
    found = timing.to_json()["spans"]
    assert len(found) == 64
    assert max(len(span["name"]) for span in found) == 64


@pytest.mark.criu
def test_spans_of_a_real_engine_come_with_the_verb(host: Host) -> None:
    host.launch().ok()
    body = {"spans": TOLD, "more": "kept"}
    result = host.unit("call", calls=[call("POST", "/echo", body)]).result
    assert result["answers"] == [{"more": "kept"}]
    names = [span["name"] for span in result["timing"]["spans"]]
    assert names == ["call", "POST /echo", "wake", "payload"]


@pytest.mark.criu
def test_a_capture_carries_how_its_engine_started_cold(host: Host) -> None:
    host.launch().ok()
    accepted = host.accept().result
    host.quiesce().ok()
    captured = host.checkpoint().result
    cold = captured["cold_start"]
    assert cold["seconds"] == accepted["first_token_seconds"]
    names = [phase["name"] for phase in cold["phases"]]
    assert names[:3] == ["generation", "namespaces", "ready"]
    assert names[-1] == "first-token"
    last = cold["phases"][-1]
    assert last["start"] + last["seconds"] == pytest.approx(cold["seconds"], abs=1e-5)
    assert all(0 <= phase["start"] <= cold["seconds"] for phase in cold["phases"])
    draft = descriptor(captured)
    draft["extensions"]["notes"] = {"cold-start": cold}
    request = {
        "store": str(host.state / "store"),
        "capture_dir": captured["capture_dir"],
        "descriptor": draft,
        "tags": ["tiny"],
        "run": host.run,
        "unit": "u0",
    }
    manifest = str(host.call("store.publish", request=request).result["manifest"])
    result = host.restore(manifest).result
    assert result["recorded"]["cold_start"] == cold
    first, *_ = result["timing"]["spans"]
    assert first["name"] == "runtime-start", "a restore's spans begin where its clock does"
    assert first["start_offset_seconds"] == pytest.approx(result["t0_boottime"], abs=1e-5)


def test_a_starts_phases_are_read_from_what_its_engine_logs(tmp_path: Path) -> None:
    log, timing = tmp_path / "engine.log", Timing("u0")
    patterns = [("imports", "^ready to load"), ("weights", r"weights took (?P<seconds>[\d.]+) s")]
    with (
        timing.span("ready"),
        LogPhases(log, patterns, timing),
        log.open("wb", buffering=0) as file,
    ):
        file.write(b"nothing\nready to lo")
        file.write(b"ad\n")
        time.sleep(0.3)
        file.write(b"weights took 0.2 s\nweights took 9.0 s\nnever ended weights took 90 s")
    found = timing.to_json()["spans"]
    ready, imports, weights, longer = found
    assert [span["name"] for span in found] == ["ready", "imports", "weights", "weights"]
    assert {span["parent"] for span in found[1:]} == {ready["id"]}
    assert imports["start_offset_seconds"] == pytest.approx(ready["start_offset_seconds"], abs=0.25)
    assert weights["duration_seconds"] == pytest.approx(0.2)
    assert longer["duration_seconds"] < 80, "nothing began before the engine did"


def test_a_pattern_that_is_none_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ColdSnapError, match="phases"):
        LogPhases(tmp_path / "log", [("x", "(")], Timing("u0"))
    assert phases_asked([["a", "b"], ["c"], "d", [1, "e"]]) == [("a", "b")]


def resident(path: Path) -> float:
    """Share of a file's pages that are in the page cache."""
    libc = ctypes.CDLL(None, use_errno=True)
    size = path.stat().st_size
    pages = -(-size // mmap.PAGESIZE)
    with path.open("rb") as file, mmap.mmap(file.fileno(), size, mmap.MAP_PRIVATE) as mapped:
        place = ctypes.c_char.from_buffer(mapped)
        found = (ctypes.c_ubyte * pages)()
        code = libc.mincore(ctypes.c_void_p(ctypes.addressof(place)), ctypes.c_size_t(size), found)
        del place
        assert code == 0
    return sum(value & 1 for value in found) / pages


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_the_page_cache_is_what_was_asked_for(runtime: Runtime, tmp_path: Path) -> None:
    kind = subprocess.run(["stat", "-f", "-c", "%T", tmp_path], capture_output=True, check=True)
    if b"tmpfs" in kind.stdout:
        pytest.skip("files of a tmpfs are never out of memory")
    folder = tmp_path / "model" / "deep"
    folder.mkdir(parents=True)
    file = folder / "weights"
    file.write_bytes(os.urandom(4 << 20))
    dropped = runtime.call("page-cache", request={"state": "dropped"})
    if dropped.last.get("ok") is False:
        assert dropped.error["code"] == "cache.not-dropped"
        pytest.skip("this kernel does not let the page cache go")
    assert resident(file) < 0.5
    request = {"state": "warm", "folders": [str(folder.parent)]}
    result = runtime.call("page-cache", request=request).result
    assert (result["bytes"], result["files"]) == (4 << 20, 1)
    assert resident(file) == 1.0


def test_versions_are_those_of_the_packages_that_are_mapped(tmp_path: Path) -> None:
    packages = tmp_path / "venv" / "lib" / "packages"
    for name in ("torch-2.11.0+cu130", "Not_Used-1.0", "serving_cpu-0.24.0", "uv_loop-3"):
        (packages / f"{name}.dist-info").mkdir(parents=True)
    (packages / "serving_cpu-0.24.0.dist-info" / "top_level.txt").write_text("serving\nextra\n")
    paths = [
        "/venv/lib/packages/torch/lib/libtorch.so",
        "/venv/lib/packages/serving/_C.abi3.so",
        "/venv/lib/packages/uv_loop.cpython-312.so",
        "/gone/packages/torch/x.so",
        "/usr/lib/libc.so.6",
    ]
    assert package_versions(tmp_path, paths) == {
        "torch": "2.11.0+cu130",
        "serving-cpu": "0.24.0",
        "uv-loop": "3",
    }
