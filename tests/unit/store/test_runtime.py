from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from coldsnap.artifact.errors import ColdSnapError
from coldsnap.artifact.tree import verify_tree
from coldsnap.store import runtime, runtime_sources
from coldsnap.store.runtime import build, show, verify

FAKE_CRIU = """#!/bin/sh
case "$1" in
--version) echo "Version: {version}" ;;
check) {check} ;;
esac
"""


def fake_criu(folder: Path, version: str = "4.1", check: str = "exit 0") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    command = folder / "criu"
    command.write_text(FAKE_CRIU.format(version=version, check=check))
    command.chmod(0o755)
    return command


@pytest.fixture(autouse=True)
def own_criu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A CRIU bundle and native programs of our own, so that nothing is downloaded or compiled."""
    bundle = tmp_path / "bundle"
    command = fake_criu(bundle)
    (bundle / "criu.bin").write_bytes(b"\x7fELF")
    (bundle / "lib").mkdir()
    (bundle / "lib" / "ld-linux-x86-64.so.2").write_bytes(b"\x7fELF loader")
    (bundle / "python" / "pycriu").mkdir(parents=True)
    for name in ("__init__.py", "rpc_pb2.py"):
        (bundle / "python" / "pycriu" / name).write_text("")
    native = tmp_path / "native"
    native.mkdir()
    (native / "coldsnap-unit").write_bytes(b"\x7fELF unit")
    (native / "coldsnap-fill").write_bytes(b"\x7fELF fill")
    (native / "libcoldsnap_guard.so").write_bytes(b"\x7fELF guard")
    (native / "CMakeCache.txt").write_text("")
    monkeypatch.setenv("COLDSNAP_CRIU", str(command))
    monkeypatch.setenv("COLDSNAP_NATIVE_DIR", str(native))
    return command


def names(archive: str) -> set[str]:
    return {file["path"] for file in show(archive)["files"]}


def test_the_pack_has_what_a_target_needs(tmp_path: Path) -> None:
    ref = build(tmp_path / "cache")
    found = names(ref.archive)
    assert {
        "__main__.py",
        "coldsnap_runtime/main.py",
        "coldsnap/__init__.py",
        "coldsnap/artifact/oci/publish.py",
        "inside/coldsnap/artifact/pack.py",
        "criu/criu",
        "criu/criu.bin",
        "criu/lib/ld-linux-x86-64.so.2",
        "pycriu/rpc_pb2.py",
        "vendor/google/protobuf/message.py",
        "bin/coldsnap-unit",
        "bin/coldsnap-fill",
        "bin/libcoldsnap_guard.so",
    } <= found
    assert any(name.startswith("inside/coldsnap_reference_engine/") for name in found)
    assert {
        "inside/coldsnap_inside_vllm/middleware.py",
        "inside/coldsnap_runtime/hydrate/library.py",
    } <= found
    assert not [n for n in found if n.endswith(".pyc") or "__pycache__" in n]
    assert [n for n in found if n.endswith(".so")] == ["bin/libcoldsnap_guard.so"]
    assert not [n for n in found if n.startswith(("coldsnap/cli", "coldsnap/store"))]
    assert "bin/CMakeCache.txt" not in found
    assert show(ref.archive)["facts"]["criu"] == "4.1"


def test_what_was_packed_unpacks_and_verifies(tmp_path: Path) -> None:
    ref = build(tmp_path / "cache")
    subprocess.run(["tar", "-xf", ref.archive, "-C", str(tmp_path / "cache")], check=True)
    (tmp_path / "out").mkdir()
    subprocess.run(["tar", "-xf", ref.archive, "-C", str(tmp_path / "out")], check=True)
    assert verify_tree(tmp_path / "out", ref.digest).digest == ref.digest
    assert verify(tmp_path / "out", ref.digest)["bytes"] == verify(ref.archive)["bytes"]
    assert os.access(tmp_path / "out" / "criu" / "criu", os.X_OK)
    assert not os.access(tmp_path / "out" / "__main__.py", os.X_OK)
    (tmp_path / "out" / "__main__.py").write_text("")
    with pytest.raises(ColdSnapError) as caught:
        verify(tmp_path / "out")
    assert "__main__.py: 0 bytes" in caught.value.details[0]


def test_a_target_can_run_it(tmp_path: Path) -> None:
    """By itself, in an empty environment, with no packages beside the interpreter's own."""
    ref = build(tmp_path / "cache")
    (tmp_path / "out").mkdir()
    subprocess.run(["tar", "-xf", ref.archive, "-C", str(tmp_path / "out")], check=True)
    pack = str(tmp_path / "out")
    code = (
        f"import sys; sys.path[:0] = [{pack!r}, {pack + '/vendor'!r}]\n"
        "import coldsnap_runtime.main, coldsnap.artifact.oci, google.protobuf.message\n"
        "from google.protobuf.internal import api_implementation\n"
        "print(coldsnap_runtime.__file__, api_implementation.Type())\n"
    )
    argv = [sys.executable, "-I", "-S", "-c", code]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, env={})
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [str(tmp_path / "out/coldsnap_runtime/__init__.py"), "python"]


def test_equal_sources_give_equal_bytes_and_are_built_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = build(tmp_path / "one"), build(tmp_path / "two")
    assert Path(one.archive).read_bytes() == Path(two.archive).read_bytes()
    assert (one.digest, one.archive_sha256) == (two.digest, two.archive_sha256)
    monkeypatch.setattr(runtime, "_archive", None)  # a second build would fail
    assert build(tmp_path / "one") == one


def test_a_changed_source_gives_another_pack(tmp_path: Path, own_criu: Path) -> None:
    one = build(tmp_path / "cache")
    own_criu.write_text(FAKE_CRIU.format(version="4.2", check="exit 0"))
    two = build(tmp_path / "cache")
    assert one.digest != two.digest
    assert show(two.archive)["facts"]["criu"] == "4.2"


def test_a_lost_archive_is_built_again(tmp_path: Path) -> None:
    one = build(tmp_path / "cache")
    Path(one.archive).unlink()
    assert build(tmp_path / "cache") == one
    os.truncate(one.archive, 10)
    assert build(tmp_path / "cache") == one
    assert verify(one.archive, one.digest)["digest"] == one.digest


def test_old_packs_are_dropped(tmp_path: Path, own_criu: Path) -> None:
    for version in range(6):
        own_criu.write_text(FAKE_CRIU.format(version=f"4.{version + 1}", check="exit 0"))
        ref = build(tmp_path / "cache")
        for path in (tmp_path / "cache").iterdir():
            ago = path.stat().st_mtime - runtime.KEPT_SECONDS
            os.utime(path, (ago, ago))
    left = list((tmp_path / "cache").glob("*.tar"))
    assert len(left) == runtime.KEPT
    assert Path(ref.archive) in left


def test_packs_that_a_run_may_be_uploading_stay(tmp_path: Path, own_criu: Path) -> None:
    made = []
    for version in range(runtime.KEPT + 2):
        own_criu.write_text(FAKE_CRIU.format(version=f"4.{version + 1}", check="exit 0"))
        made.append(build(tmp_path / "cache"))
    assert all(Path(ref.archive).exists() for ref in made)


def test_a_cache_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ColdSnapError) as caught:
        build(tmp_path / "file" / "cache")
    assert caught.value.code == "file.unwritable"
    assert "XDG_CACHE_HOME" in caught.value.remedy


def test_times_and_owners_are_in_no_archive(tmp_path: Path) -> None:
    with tarfile.open(build(tmp_path / "cache").archive) as archive:
        members = archive.getmembers()
    assert {(m.mtime, m.uid, m.gid, m.uname) for m in members} == {(0, 0, 0, "")}
    assert {m.mode for m in members} == {0o644, 0o755}
    assert [m.name for m in members[1:]] == sorted(m.name for m in members[1:])


def test_missing_native_programs_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLDSNAP_NATIVE_DIR", str(tmp_path / "nothing"))
    with pytest.raises(ColdSnapError) as caught:
        build(tmp_path / "cache")
    assert caught.value.code == "runtime.no-native"
    assert "COLDSNAP_NATIVE_DIR" in caught.value.remedy
    assert not (tmp_path / "cache").exists()


def test_a_file_that_is_no_pack_is_told(tmp_path: Path) -> None:
    path = tmp_path / "x.tar"
    path.write_bytes(b"no tar")
    for action in (show, verify):
        with pytest.raises(ColdSnapError) as caught:
            action(path)
        assert caught.value.code == "runtime.archive-invalid"


def test_an_installed_criu_is_bundled_with_its_libraries(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program with shared libraries (here: true) runs from the folder by its own loader."""
    program = shutil.which("true")
    assert program is not None
    runtime_sources._bundle(Path(program).resolve(), tmp_path / "made")
    done = subprocess.run([str(tmp_path / "made" / "criu")], check=False)
    assert done.returncode == 0
    assert any(p.name.startswith("libc.") for p in (tmp_path / "made" / "lib").iterdir())
    assert "--library-path" in (tmp_path / "made" / "criu").read_text()
