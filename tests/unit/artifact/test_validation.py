from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from coldsnap.artifact.errors import ColdSnapError
from coldsnap.artifact.files import (
    read_regular,
    sha256_file,
    sha256_stream,
    write_atomic,
)
from coldsnap.artifact.measure import EVIDENCE, is_measured, measure, read_evidence
from coldsnap.artifact.tree import Listing, TreeFile, verify_tree
from coldsnap.artifact.validation import SUFFIX, ValidationResult, hash_unchanged, validate


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "blob"
    path.write_bytes(b"content" * 1000)
    return path


def check(path: Path, **options: Any) -> ValidationResult:
    digest = options.pop("sha256", None) or sha256_file(path)
    return validate(path, sha256=digest, size=options.pop("size", 7000), **options)


def test_the_second_look_reads_nothing(file: Path) -> None:
    first, second = check(file), check(file)
    assert first.validation.reason == "revalidated_existing"
    assert first.validation.bytes_hashed == 7000
    assert second.validation.reason == "cached_validation"
    assert second.validation.bytes_hashed == 0
    assert second.validation.content_evidence == "cached-full-sha256"
    assert check(file, policy="full").validation.bytes_hashed == 7000
    record = json.loads(Path(f"{file}{SUFFIX}").read_text())
    assert record["kind"] == "coldsnap-payload-validation"
    assert record["provider"] == "sha256-cache-v1"
    assert record["blob"] == "blob"
    assert record["content_identity"]["inode"] == file.stat().st_ino
    assert Path(f"{file}{SUFFIX}").stat().st_mode & 0o777 == 0o600


def touch(path: Path) -> None:
    os.utime(path, ns=(1, 1))


def new_inode(path: Path) -> None:
    data, stat = path.read_bytes(), path.stat()
    path.rename(path.with_name("kept"))  # so that the inode is not used again
    path.write_bytes(data)
    os.utime(path, ns=(stat.st_mtime_ns, stat.st_mtime_ns))


def damage_record(path: Path) -> None:
    Path(f"{path}{SUFFIX}").write_text("{")


def record_of_another(path: Path) -> None:
    record = Path(f"{path}{SUFFIX}")
    record.write_text(record.read_text().replace('"blob":"blob"', '"blob":"other"'))


@pytest.mark.parametrize("change", [touch, new_inode, damage_record, record_of_another])
def test_any_doubt_means_a_full_hash(file: Path, change: Callable[[Path], None]) -> None:
    check(file)
    change(file)
    assert check(file).validation.bytes_hashed == 7000
    assert check(file).validation.bytes_hashed == 0


def test_a_hard_link_and_a_mode_change_are_no_doubt(file: Path, tmp_path: Path) -> None:
    check(file)
    os.link(file, tmp_path / "link")
    file.chmod(0o400)
    assert check(file).validation.bytes_hashed == 0


def test_differences_fail_closed(file: Path, tmp_path: Path) -> None:
    good = sha256_file(file)
    check(file)
    file.write_bytes(b"CONTENT" * 1000)
    with pytest.raises(ColdSnapError) as caught:
        check(file, sha256=good)
    assert caught.value.code == "payload.digest-differs"
    with pytest.raises(ColdSnapError) as caught:
        check(file, size=6999)
    assert caught.value.code == "payload.size-differs"
    link = tmp_path / "link"
    link.symlink_to(file)
    with pytest.raises(ColdSnapError) as caught:
        check(link, sha256=good)
    assert caught.value.code == "file.not-regular"


def test_a_file_that_changes_under_the_hash_is_refused(file: Path) -> None:
    def meddle(_done: int) -> None:
        with file.open("ab") as other:
            other.write(b"x")

    with file.open("rb") as opened, pytest.raises(ColdSnapError) as caught:
        hash_unchanged(opened, "blob", meddle)
    assert caught.value.code == "payload.changed"


def test_a_record_that_cannot_be_kept_costs_nothing_else(file: Path, tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("")
    assert check(file, record=tmp_path / "taken" / "record.json").bytes == 7000


def test_measured_files_are_known_until_they_change(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    for name in ("a/x", "y"):
        (tmp_path / name).write_bytes(name.encode())
    seen: list[int] = []
    measured = measure(tmp_path, ["a/x", "y"], seen.append)
    assert {name: item.bytes for name, item in measured.items()} == {"a/x": 3, "y": 1}
    assert seen[-1] == 4
    evidence = read_evidence(tmp_path)
    assert evidence == measured
    item = measured["y"]
    assert is_measured(item, (tmp_path / "y").stat(), item.sha256)
    assert not is_measured(item, (tmp_path / "y").stat(), "sha256:" + "0" * 64)
    touch(tmp_path / "y")
    assert not is_measured(item, (tmp_path / "y").stat(), item.sha256)
    (tmp_path / EVIDENCE).write_text("[]")
    assert read_evidence(tmp_path) == {}


def test_an_atomic_write_keeps_the_old_file_until_the_end(tmp_path: Path) -> None:
    path = tmp_path / "f"
    write_atomic(path, b"one", 0o640)
    assert path.stat().st_mode & 0o777 == 0o640
    write_atomic(path, b"two")
    assert path.read_bytes() == b"two"
    assert [p.name for p in tmp_path.iterdir()] == ["f"]
    with pytest.raises(ColdSnapError) as caught:
        write_atomic(tmp_path / "none" / "f", b"")
    assert caught.value.code == "file.unwritable"
    with pytest.raises(ColdSnapError) as caught:
        read_regular(path, 2)
    assert caught.value.code == "file.too-large"


def test_hashes_are_of_what_is_left_to_read(file: Path) -> None:
    with file.open("rb") as opened:
        opened.seek(7000)
        assert sha256_stream(opened).startswith("sha256:e3b0c442")


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    root = tmp_path / "tree"
    (root / "bin").mkdir(parents=True)
    (root / "bin" / "run").write_bytes(b"#!")
    (root / "bin" / "run").chmod(0o755)
    (root / "m.py").write_bytes(b"")
    files = tuple(
        TreeFile(path, (root / path).stat().st_size, sha256_file(root / path), path == "bin/run")
        for path in ("bin/run", "m.py")
    )
    write_atomic(root / "pack.json", json.dumps(Listing(files).to_json()).encode(), 0o644)
    return root


def test_a_whole_tree_verifies_also_with_byte_code_in_it(tree: Path) -> None:
    (tree / "__pycache__").mkdir()
    (tree / "__pycache__" / "m.pyc").write_bytes(b"x")
    found = verify_tree(tree)
    assert found.bytes == 2
    assert verify_tree(tree, found.digest[7:]).digest == found.digest
    with pytest.raises(ColdSnapError) as caught:
        verify_tree(tree, "0" * 64)
    assert caught.value.code == "pack.wrong"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda t: (t / "m.py").write_bytes(b"x"), "m.py: 1 bytes, expected 0"),
        (lambda t: (t / "bin/run").write_bytes(b"!#"), "bin/run: damaged"),
        (lambda t: (t / "bin/run").chmod(0o644), "bin/run: not executable"),
        (lambda t: (t / "m.py").unlink(), "m.py: missing"),
        (lambda t: (t / "extra.py").write_text(""), "extra.py: not part of the pack"),
    ],
)
def test_a_changed_tree_names_the_file(tree: Path, change: Any, said: str) -> None:
    change(tree)
    with pytest.raises(ColdSnapError) as caught:
        verify_tree(tree)
    assert caught.value.code == "pack.differs"
    assert said in caught.value.details
