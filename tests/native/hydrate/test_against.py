"""payload bench --against: a table of loaders that are honest, broken, lying or not there."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from coldsnap_runtime.hydrate.bench_tensors import make_tensors
from coldsnap_runtime.hydrate.library import Library
from coldsnap_runtime.hydrate.page_cache import cached_share

LOADER = """
import hashlib, json, os, sys, time
FAULT = {fault!r}
if FAULT == "silent":
    time.sleep(60)
if FAULT == "dies":
    print("libfancy.so: version GLIBC_9.99 not found", file=sys.stderr)
    sys.exit(3)
print(json.dumps({{"ready": True, "version": "9.9"}}), flush=True)
for line in sys.stdin:
    if FAULT == "garbage":
        print("loading: 100%", flush=True)
        continue
    request = json.loads(line)
    if FAULT == "hangs":
        time.sleep(60)
    data = open(request["load"], "rb").read()
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8:8 + length])
    body = bytearray(data[8 + length:])
    if FAULT == "wrong":
        body[-1] ^= 1
    if FAULT == "short":
        del body[-1:]
    digests = []
    for name, at, size in request["samples"]:
        begin = header[name]["data_offsets"][0] + at
        digests.append(hashlib.sha256(body[begin:begin + size]).hexdigest())
    print(json.dumps({{"seconds": 0.5, "bytes": len(body), "samples": digests}}), flush=True)
"""


@pytest.fixture
def interpreter(tmp_path: Path):
    """Makes a program that stands for an interpreter and answers as a loader's process does."""

    def make(fault: str) -> Path:
        path = tmp_path / f"python-{fault}"
        path.write_text(f"#!{sys.executable}\n" + textwrap.dedent(LOADER).format(fault=fault))
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        return path

    return make


def bench(built: Path, tmp_path: Path, *words: object, code: int = 0) -> Any:
    done = subprocess.run(
        [
            sys.executable, "-m", "coldsnap.cli", "payload", "bench", "--size", "32MiB",
            "--rounds", "2", "--dir", str(tmp_path), "--json", *map(str, words),
        ],
        env=os.environ | {"COLDSNAP_HYDRATE_LIBRARY": str(built / "libcoldsnap_hydrate.so")},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == code, done.stderr
    return json.loads(done.stdout) if not code else done.stderr


def rows(found: Any) -> dict[str, Any]:
    return {row["name"]: row for row in found["rows"]}


def test_a_loader_is_measured_beside_ours_and_the_ceilings(built, tmp_path, interpreter) -> None:
    found = bench(built, tmp_path, "--against", "runai", "--peer-python", interpreter("none"))
    table = rows(found)
    peer = table["runai"]
    assert peer["reason"] is None
    assert peer["version"] == "9.9"
    assert peer["warm"] == {
        "rate": found["size"] / 0.5, "best": found["size"] / 0.5, "rounds": 2
    }  # fmt: skip
    assert peer["cold"]["rounds"] == 1
    assert table["coldsnap, verified"]["warm"]["rounds"] == 2
    assert table["coldsnap, verified"]["cold"]["rate"] > 0
    assert table["plain parallel read"]["ceiling"]
    assert table["O_DIRECT read"]["cold"]["rounds"] == 1
    assert found["cold_cached"] < 0.01
    assert not list(tmp_path.glob("coldsnap-bench*"))


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        ("wrong", "what it loaded differs from what is in the file"),
        ("short", "loaded "),
        ("garbage", "answered b'loading: 100%'"),
        ("dies", "its process ended: libfancy.so: version GLIBC_9.99 not found"),
    ],
)
def test_a_loader_that_fails_is_left_out_by_name(
    built, tmp_path, interpreter, fault, reason
) -> None:
    table = rows(bench(built, tmp_path, "--against", "runai", "--peer-python", interpreter(fault)))
    assert table["runai"]["reason"].startswith(reason)
    assert table["runai"]["warm"]["rate"] is None
    assert table["coldsnap, verified"]["warm"]["rounds"] == 2


@pytest.mark.parametrize("fault", ["hangs", "silent"])
def test_a_loader_that_does_not_answer_is_ended(built, tmp_path, interpreter, fault) -> None:
    done = subprocess.run(
        [
            sys.executable, "-m", "coldsnap_runtime.hydrate.bench_against", "--size", "16MiB",
            "--dir", str(tmp_path), "--rounds", "1",
            "--against", "runai", "--peer-python", str(interpreter(fault)), "--deadline", "1",
        ],
        env=os.environ | {"COLDSNAP_HYDRATE_LIBRARY": str(built / "libcoldsnap_hydrate.so")},
        capture_output=True, text=True, check=True, timeout=60,
    )  # fmt: skip
    assert rows(json.loads(done.stdout))["runai"]["reason"] == "no answer in 1 s"


def test_a_loader_that_is_not_installed_says_so(built, tmp_path) -> None:
    """By our own interpreter, which has no torch."""
    table = rows(bench(built, tmp_path, "--against", "safetensors,instanttensor", "--no-cold"))
    for name in ("safetensors", "instanttensor", "instanttensor, buffered"):
        assert table[name]["reason"] == "ModuleNotFoundError: No module named 'torch'"


@pytest.mark.vllm
def test_real_loaders_load_the_same_bytes(built, tmp_path) -> None:
    python = os.environ.get("COLDSNAP_VLLM_PYTHON")
    if not python:
        pytest.skip("COLDSNAP_VLLM_PYTHON names no interpreter with torch and safetensors")
    table = rows(bench(built, tmp_path, "--against", "safetensors", "--peer-python", python))
    assert table["safetensors"]["reason"] is None
    assert table["safetensors"]["warm"]["rounds"] == 2


def test_a_device_has_the_pinned_copy_as_its_ceiling(built, tmp_path, fake_cuda) -> None:
    """Ours by a driver that is a fake; the others find no GPU."""
    done = subprocess.run(
        [
            sys.executable, "-m", "coldsnap_runtime.hydrate.bench_against", "--size", "32MiB",
            "--dir", str(tmp_path), "--rounds", "1", "--device", "cuda",
            "--cuda-library", str(fake_cuda),
        ],
        env=os.environ | {"COLDSNAP_HYDRATE_LIBRARY": str(built / "libcoldsnap_hydrate.so")},
        capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    table = rows(json.loads(done.stdout))
    assert table["pinned copy"]["warm"]["rate"] > 0
    assert table["coldsnap, verified"]["warm"]["rate"] > 0
    assert table["coldsnap, verified"]["cold"]["rate"] > 0
    assert "coldsnap, verified, new memory" not in table
    assert {"fastsafetensors, cuFile", "instanttensor, mmap", "runai"} <= set(table)
    assert table["runai"]["reason"]


def test_peers_that_nobody_knows_are_refused(built, tmp_path) -> None:
    error = bench(built, tmp_path, "--against", "tensorizer", code=1)
    assert "error[bench.unknown-peer]: there is no peer 'tensorizer'" in error
    assert "known are safetensors, fastsafetensors, instanttensor, runai" in error


def test_the_file_is_what_safetensors_says_and_is_used_again(library: Library, tmp_path) -> None:
    file = make_tensors(library, tmp_path, 32 << 20)
    data = file.path.read_bytes()
    header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
    assert header.pop("__metadata__") == {"format": "pt"}
    assert len(header) == len(file.tensors) > 10
    ends = [entry["data_offsets"][1] for entry in header.values()]
    assert max(ends) == file.data_bytes <= 32 << 20
    pages = {data[at : at + 4096] for at in range(file.tensors[0].offset, len(data), 4096)}
    assert len(pages) == file.data_bytes // 4096
    made = file.path.stat().st_mtime_ns
    assert make_tensors(library, tmp_path, 32 << 20).digests == file.digests
    assert file.path.stat().st_mtime_ns == made
    file.path.write_bytes(data[:-1])
    assert make_tensors(library, tmp_path, 32 << 20).path.stat().st_size == len(data)


def test_what_is_in_the_page_cache_is_known(library: Library, tmp_path) -> None:
    file = make_tensors(library, tmp_path, 32 << 20)
    file.warm()
    assert cached_share(file.path) > 0.99
    file.drop()
    assert cached_share(file.path) < 0.01
