"""payload pack, list, verify on real files."""

from __future__ import annotations

import json
import re
import struct
from pathlib import Path

import pytest


def safetensors(path: Path, tensors: dict[str, tuple[str, list[int], bytes]]) -> None:
    header, body = {}, b""
    for name, (dtype, shape, data) in tensors.items():
        offsets = [len(body), len(body) + len(data)]
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": offsets}
        body += data
    text = json.dumps({"__metadata__": {"format": "pt"}, **header}).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + body)


@pytest.fixture
def model(cli) -> Path:
    folder = cli.project / "model"
    folder.mkdir()
    safetensors(
        folder / "a.safetensors",
        {"w.2": ("F32", [2, 2], bytes(range(16))), "w.1": ("I8", [3], b"abc")},
    )
    return folder


def test_a_model_becomes_a_pack_that_verifies(cli, model) -> None:
    (cli.project / "extra.bin").write_bytes(b"x" * 5000)
    (cli.project / "empty.bin").write_bytes(b"")
    made = cli("payload", "pack", "model", "extra.bin", "empty.bin", "--json").json
    body = cli.project / made["body"]
    assert body.name == made["sha256"].removeprefix("sha256:") + ".pack"
    listed = cli("payload", "list", str(body), "--json").json
    assert [e["id"] for e in listed["extents"]] == ["empty.bin", "extra.bin", "w.1", "w.2"]
    assert listed["extents"][3]["attributes"] == {"dtype": "F32", "shape": "2,2"}
    assert "w.2" in cli("payload", "list", str(body)).out
    verified = cli("payload", "verify", str(body), "--json").json
    assert verified["bytes_hashed"] == made["bytes"] == body.stat().st_size
    again = cli("payload", "pack", "extra.bin", "model", "empty.bin", "--json").json
    assert again["sha256"] == made["sha256"]


def test_a_flipped_byte_is_found(cli, model) -> None:
    body = cli.project / cli("payload", "pack", "model", "--json").json["body"]
    body.chmod(0o600)
    data = bytearray(body.read_bytes())
    data[4097] ^= 1
    body.write_bytes(data)
    done = cli("payload", "verify", str(body), code=1)
    assert "error[pack.chunk-differs]" in done.err
    assert "'w.2'" in done.err


def test_another_pack_than_expected_is_refused(cli, model) -> None:
    body = cli("payload", "pack", "model", "--json").json["body"]
    wrong = "sha256:" + "0" * 64
    assert "pack.body-differs" in cli("payload", "verify", body, "--expected-sha256", wrong,
                                      code=1).err  # fmt: skip
    assert "pack.body-differs" in cli("payload", "verify", body, "--expected-bytes", "1",
                                      code=1).err  # fmt: skip


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xff" * 20,
        struct.pack("<Q", 2) + b"[]",
        struct.pack("<Q", 8) + b"not json",
        struct.pack("<Q", 41) + b'{"a":{"data_offsets":[0,99],"shape":[1]}}',
        struct.pack("<Q", 40) + b'{"a":{"data_offsets":[5,1],"shape":[1]}}',
        struct.pack("<Q", 7) + b'{"a":3}',
    ],
)
def test_a_bad_safetensors_file_is_refused(cli, content) -> None:
    (cli.project / "bad.safetensors").write_bytes(content)
    done = cli("payload", "pack", "bad.safetensors", code=1)
    assert "error[payload.bad-safetensors]" in done.err


def test_what_is_not_there_and_what_comes_twice(cli, model) -> None:
    assert "error[file.missing]" in cli("payload", "pack", "nope.bin", code=1).err
    assert (
        "error[payload.duplicate]"
        in cli("payload", "pack", "model", "model/a.safetensors", code=1).err
    )
    (cli.project / "none").mkdir()
    assert "error[payload.no-files]" in cli("payload", "pack", "none", code=1).err


def test_a_manager_gets_the_published_answer_and_its_record(cli, model) -> None:
    made = cli("payload", "pack", "model", "--json").json
    asked = (
        "payload", "verify", "--path", made["body"], "--record", "r.json", "--worker", "w0",
        "--expected-sha256", made["sha256"], "--expected-bytes", str(made["bytes"]), "--json",
    )  # fmt: skip
    first, again = cli(*asked).json, cli(*asked).json
    assert first["kind"] == "coldsnap-payload-validation-result"
    assert (first["worker"], first["decision"]) == ("w0", "accept")
    assert first["validation"]["reason"] == "revalidated_existing"
    assert again["validation"]["reason"] == "cached_validation"
    assert again["validation"]["bytes_hashed"] == 0
    assert "error[cli.usage]" in cli("payload", "verify", made["body"], "--record", "r", code=1).err
    assert "error[cli.usage]" in cli("payload", "verify", code=1).err


def test_a_record_never_takes_the_place_of_another_file(cli, model) -> None:
    """Not of the pack, its index, a folder or a device; what cannot be written is told."""
    made = cli("payload", "pack", "model", "--json").json
    body, index = (cli.project / made[name] for name in ("body", "index"))
    whole = body.read_bytes(), index.read_bytes()
    expected = ["--expected-sha256", made["sha256"], "--expected-bytes", str(made["bytes"])]
    link = cli.project / "link"
    link.symlink_to(body)
    for place, code in (
        (body, "payload.not-a-record"),
        (index, "payload.not-a-record"),
        (link, "file.not-regular"),
        (cli.project, "file.not-regular"),
        ("/dev/null", "file.not-regular"),
    ):
        for verb in (["record", str(body)], ["verify", str(body), *expected]):
            done = cli("payload", *verb, "--record", str(place), code=1)
            assert f"error[{code}]" in done.err
    done = cli("payload", "record", str(body), "--record", "/proc/none/record", code=1)
    assert "/proc/none/record cannot be written" in done.err
    assert (body.read_bytes(), index.read_bytes()) == whole
    assert Path("/dev/null").is_char_device()
    torn = cli.project / "torn"
    torn.write_text('{"blob": "x')
    cli("payload", "record", str(body), "--record", str(torn))
    said = cli("payload", "verify", str(body), *expected, "--record", str(torn), "--json").json
    assert said["validation"]["reason"] == "cached_validation"


@pytest.mark.parametrize("named", [".", "/", "", "model"])
def test_a_folder_is_no_pack(cli, model, named: str) -> None:
    for verb in ("list", "verify", "record", "hydrate"):
        done = cli("payload", verb, named, code=1)
        assert "error[file.not-regular]" in done.err
        assert "HEX.pack" in done.err


@pytest.mark.parametrize("size", ["0", "-1", "1e400", "x", "", "1 GB 2", "9" * 400, "nan"])
def test_a_bench_of_no_size(cli, size: str) -> None:
    for bench in (["payload", "bench"], ["bench", "process-restore"]):
        assert "error[cli.usage]" in cli(*bench, f"--size={size}", code=1).err


def test_a_bench_without_room(cli) -> None:
    huge = ["payload", "bench", "--size", "900000TiB", "--rounds", "1"]
    for more in ([], ["--against", "safetensors"]):
        assert "error[bench.no-room]" in cli(*huge, *more, code=1).err
    for folder in ("/proc", "nowhere"):
        done = cli("payload", "bench", "--size", "1MiB", "--dir", folder, code=1)
        assert re.search(r"error\[(bench|file)\.", done.err), done.err
        assert folder in done.err
