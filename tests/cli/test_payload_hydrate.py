"""payload hydrate, bench, record, and verify by all cores, with the library built here."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from native_build import build_native


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = build_native(
        tmp_path_factory.mktemp("native"), "coldsnap_hydrate", "coldsnap_fake_cuda"
    )
    return folder / "hydrate" / "libcoldsnap_hydrate.so"


@pytest.fixture
def fast(cli, library):
    cli.env["COLDSNAP_HYDRATE_LIBRARY"] = str(library)
    return cli


@pytest.fixture
def body(fast) -> Path:
    (fast.project / "a.bin").write_bytes(bytes(range(256)) * 40_000)
    (fast.project / "b.bin").write_bytes(b"b")
    made = fast("payload", "pack", "a.bin", "b.bin", "--json").json
    return fast.project / made["body"]


def flip(body: Path, at: int) -> None:
    body.chmod(0o600)
    data = bytearray(body.read_bytes())
    data[at] ^= 1
    body.write_bytes(data)


def test_a_pack_is_hydrated_and_timed(fast, body) -> None:
    done = fast("payload", "hydrate", str(body))
    assert done.out.startswith(f"hydrated: {body}\n  9.8 MiB in ")
    assert "every chunk checked" in done.out
    value = fast("payload", "hydrate", str(body), "--no-verify", "--threads", "3", "--json").json
    assert (value["bytes"], value["verified"], value["threads"]) == (10_240_001, False, 3)
    assert value["rate"] > 0
    assert set(value["stages"]) == {"file", "digest", "wait", "turn", "device"}
    assert (value["engine"], value["engine_reason"]) == ("host", "")
    assert 0 < value["clock"]["first"] <= value["clock"]["eighth_8"] <= value["seconds"]
    fast("payload", "hydrate", str(body), "--engine", "telepathy", code=1)


def test_damage_ends_a_hydration(fast, body) -> None:
    flip(body, 4_200_000)
    done = fast("payload", "hydrate", str(body), code=1)
    assert "error[pack.chunk-differs]" in done.err
    assert "extent 'a.bin', chunk 1 (bytes 4194304 to 8388608)" in done.err
    assert "provider=recovery" in done.err
    fast("payload", "hydrate", str(body), "--no-verify")


@pytest.mark.parametrize("with_library", [True, False])
def test_verify_says_the_same_with_and_without_the_library(fast, body, with_library) -> None:
    if not with_library:
        fast.env["COLDSNAP_HYDRATE_LIBRARY"] = ""
    good = fast("payload", "verify", str(body), "--json").json
    assert good["bytes_hashed"] == body.stat().st_size
    flip(body, body.stat().st_size - 1)
    done = fast("payload", "verify", str(body), code=1)
    assert "error[pack.padding]" in done.err
    assert "extent 'b.bin', the zeros behind it" in done.err


def test_without_the_library_hydrate_says_what_to_do(fast, body) -> None:
    fast.env["COLDSNAP_HYDRATE_LIBRARY"] = ""
    done = fast("payload", "hydrate", str(body), code=1)
    assert "error[hydrate.library]" in done.err
    assert "make native" in done.err
    fast.env["COLDSNAP_HYDRATE_LIBRARY"] = str(body)
    assert "cannot be used" in fast("payload", "hydrate", str(body), code=1).err


def test_without_a_gpu_it_says_so(fast, body) -> None:
    done = fast("payload", "hydrate", str(body), "--device", "cuda", code=None)
    if done.code == 0:
        pytest.skip("there is a CUDA device here")
    assert "error[hydrate.no-device]" in done.err
    assert "no CUDA driver" in done.err


def test_a_record_is_written_and_honoured(fast, body) -> None:
    made = fast("payload", "record", str(body), "--record", "r.json", "--json").json
    assert json.loads((fast.project / "r.json").read_text())["kind"] == (
        "coldsnap-payload-validation"
    )
    accepted = fast(
        "payload", "verify", "--path", str(body), "--record", "r.json", "--expected-sha256",
        made["sha256"], "--expected-bytes", str(made["bytes"]), "--json",
    ).json  # fmt: skip
    assert accepted["validation"]["reason"] == "cached_validation"
    flip(body, 0)
    assert "pack.chunk-differs" in fast("payload", "record", str(body), code=1).err


@pytest.mark.parametrize("device", ["host", "cuda"])
def test_bench_tells_rates_beside_ceilings(fast, library, device) -> None:
    if device == "cuda":  # the driver's name is found through the loader's path
        fake = library.parent / "libcuda.so.1"
        shutil.copyfile(library.parent / "libcoldsnap_fake_cuda.so", fake)
        fast.env["LD_LIBRARY_PATH"] = str(library.parent)
    asked = (
        "payload",
        "bench",
        "--device",
        device,
        "--size",
        "16MiB",
        "--rounds",
        "1",
        "--dir",
        ".",
    )
    found = fast(*asked, "--json").json
    series = {entry["name"]: entry for entry in found["series"]}
    assert found["size"] == 16 << 20
    assert all(entry["rate"] > 0 for entry in series.values())
    ceiling = "pinned copy" if device == "cuda" else "digest blake3"
    assert series["warm, blake3"]["ceiling"] == ceiling
    assert series["warm, blake3"]["ratio"] == pytest.approx(
        series["warm, blake3"]["rate"] / series[ceiling]["rate"]
    )
    written = {"write, named", "write, draft", "write, draft in page cache"}
    assert {"cold, blake3", "O_DIRECT read"} | written <= set(series)
    assert not list(fast.project.glob("coldsnap-bench*"))
    shown = fast(*asked, "--no-cold", "--no-write").out
    assert "of plain parallel read" in shown or "of pinned copy" in shown
    assert "16 MiB, 1 round, " in shown
    assert "error[cli.usage]" in fast("payload", "bench", "--size", "much", code=1).err
