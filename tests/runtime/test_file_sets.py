"""Folders out to two objects and back: equal to the byte, and never beyond the folder."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pytest

from coldsnap.artifact.errors import ColdSnapError
from coldsnap_runtime import fileset


def facts(folder: Path) -> dict[str, object]:
    found: dict[str, object] = {}
    for path in sorted(folder.rglob("*")):
        status = path.lstat()
        data = path.read_bytes() if stat.S_ISREG(status.st_mode) else None
        link = path.readlink() if path.is_symlink() else None
        times = status.st_mtime_ns if link is None else 0
        key = (stat.S_IFMT(status.st_mode), stat.S_IMODE(status.st_mode), data, link, times)
        found[str(path.relative_to(folder))] = (*key, status.st_uid, status.st_nlink)
    return found


@pytest.fixture
def saved(tmp_path: Path) -> tuple[Path, Path, Path]:
    """(folder, index, data)."""
    folder = tmp_path / "from"
    deep = folder / "cache" / "a b" / "é"
    deep.mkdir(parents=True)
    for number in range(40):
        (deep / f"{number}.py").write_bytes(os.urandom(number * 100))
    (deep / "0.py").chmod(0o751)
    (folder / "holes").write_bytes(b"")
    with (folder / "holes").open("r+b") as file:
        file.truncate(1 << 22)
        file.seek(1 << 20)
        file.write(b"data")
    (folder / "hard").hardlink_to(deep / "1.py")
    (folder / "soft").symlink_to("cache/a b")
    os.mkfifo(folder / "pipe")
    os.utime(deep, ns=(5, 7))
    os.utime(deep / "3.py", ns=(5, 1_234_567_890_123))
    (folder / "locked").mkdir(mode=0o500)
    index, data = tmp_path / "i.json", tmp_path / "d.data"
    fileset.save(folder, index, data)
    return folder, index, data


def test_back_as_it_was(saved: tuple[Path, Path, Path], tmp_path: Path) -> None:
    folder, index, data = saved
    target = tmp_path / "to"
    target.mkdir()
    done = fileset.put_back(target, index, data)
    assert facts(target) == facts(folder)
    assert (target / "holes").stat().st_blocks < 4096
    assert done.bytes == data.stat().st_size
    fileset.put_back(target, index, data)
    assert facts(target) == facts(folder), "what is there is replaced"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_owners_are_kept(saved: tuple[Path, Path, Path], tmp_path: Path) -> None:
    folder, index, data = saved
    os.chown(folder / "cache" / "a b" / "é" / "2.py", 1234, 4321)
    fileset.save(folder, index, data)
    target = tmp_path / "to"
    target.mkdir()
    fileset.put_back(target, index, data)
    status = (target / "cache" / "a b" / "é" / "2.py").stat()
    assert (status.st_uid, status.st_gid) == (1234, 4321)


FILE = {"mode": 0o600, "uid": 0, "gid": 0, "mtime_ns": 0, "type": "file", "size": 0, "extents": []}
LINK = {"mode": 0o777, "uid": 0, "gid": 0, "mtime_ns": 0, "type": "symlink", "target": "/outside"}
FOLDER = {"mode": 0o700, "uid": 0, "gid": 0, "mtime_ns": 0, "type": "dir"}


@pytest.mark.parametrize(
    "entries",
    [
        [{**FILE, "path": "../out"}],
        [{**FILE, "path": "/out"}],
        [{**FILE, "path": "a//b"}],
        [{**LINK, "path": "a"}, {**FILE, "path": "a/out"}],
        [{**LINK, "path": "a"}, {**FOLDER, "path": "a"}],
        [{**FOLDER, "path": "a"}, {**FILE, "path": "a/x", "size": 1, "extents": [[0, 2, 0]]}],
        [{**FILE, "path": "x", "size": 9, "extents": [[0, 9, 0]]}],
        [{**FILE, "path": "x", "size": -1}],
        [{**FILE, "path": "x", "type": "device"}],
        [{"path": "x", "type": "file"}],
    ],
)
def test_hostile_sets_are_refused(tmp_path: Path, entries: list[dict[str, object]]) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    for entry in entries:
        if entry.get("target"):
            entry["target"] = str(outside)
    mode = outside.stat().st_mode
    index, data, target = tmp_path / "i.json", tmp_path / "d.data", tmp_path / "to"
    data.write_bytes(b"12345")
    target.mkdir()
    document = {"format": 1, "kind": "coldsnap-file-set", "bytes": 5, "entries": entries}
    index.write_text(json.dumps(document))
    with pytest.raises(ColdSnapError) as caught:
        fileset.put_back(target, index, data)
    assert caught.value.code == "image.file-set-damaged"
    assert not list(outside.iterdir())
    assert outside.stat().st_mode == mode
    assert not (tmp_path / "out").exists()


def test_a_folder_takes_no_files_place_twice(tmp_path: Path) -> None:
    index, data, target = tmp_path / "i.json", tmp_path / "d.data", tmp_path / "to"
    data.write_bytes(b"")
    target.mkdir()
    entries = [{**FOLDER, "path": "a"}, {**FILE, "path": "a/b"}, {**LINK, "path": "a"}]
    document = {"format": 1, "kind": "coldsnap-file-set", "bytes": 0, "entries": entries}
    index.write_text(json.dumps(document))
    with pytest.raises(OSError, match="directory"):
        fileset.put_back(target, index, data)
