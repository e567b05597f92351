"""A folder's files as two objects of an image: ``NAME.json`` (what is where) and ``NAME.data``.

Keeps what matters to processes that have these files open or mapped: hard links (CRIU's
link_remap.* share their file with others), holes (segments of shared memory are mostly holes),
owner, mode and mtime. Sockets are left out: CRIU binds them again. The index is canonical JSON,
so equal folders give equal objects.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import stat
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from coldsnap.artifact.canonical import dumps
from coldsnap.artifact.errors import ColdSnapError
from coldsnap.artifact.files import read_regular

MAX_INDEX = 256 << 20
_FORMAT = 1
_KIND = "coldsnap-file-set"
_MAX_FILE = 1 << 46


@dataclass(frozen=True)
class FileSetSize:
    files: int
    bytes: int
    """Of data, holes left out."""


def save(
    folder: Path,
    index: Path,
    data: Path,
    only: Sequence[str] | None = None,
    without: Collection[Path] = (),
) -> FileSetSize:
    """Write the two objects of `folder`; a folder that is not there is an empty set.

    `only` limits it to these paths (relative, folders before what is in them); what lies at
    `without` (mounts, such as a model) is left out.

    Raises:
        OSError: as the system says (disk full).
    """
    entries: list[dict[str, Any]] = []
    seen: dict[tuple[int, int], str] = {}
    with open(data, "wb", opener=_private) as out:
        paths = _walk(folder, without) if only is None else (folder / name for name in only)
        for path in paths:
            entry = _entry(folder, path, seen, out.fileno())
            if entry is not None:
                entries.append(entry)
        size = os.lseek(out.fileno(), 0, os.SEEK_END)
    document = {"format": _FORMAT, "kind": _KIND, "bytes": size, "entries": entries}
    with open(index, "w", encoding="ascii", opener=_private) as file:
        file.write(dumps(document))
    return FileSetSize(sum(entry["type"] == "file" for entry in entries), size)


def put_back(folder: Path, index: Path, data: Path) -> FileSetSize:
    """Recreate the files below `folder`, which must exist; a file that is there is replaced.

    Raises:
        ColdSnapError: ``image.file-set-damaged`` for an index that is not one, leaves the folder
            or does not fit the data.
        OSError: as the system says (disk full).
    """
    document = _read_index(index)
    total = data.stat().st_size
    if document.get("bytes") != total:
        raise _damaged(index, f"speaks of {document.get('bytes')} bytes, {data.name} has {total}")
    folders = _Folders(folder, index)
    with open(data, "rb") as source:
        for entry in document["entries"]:
            _create(folders, entry, source.fileno(), index, total)
    # Times last, deepest first: creating an entry changes its folder's.
    for entry in reversed(document["entries"]):
        if entry["type"] == "dir":
            _set_times(_Folders(folder, index).target(entry), entry)
    return FileSetSize(len(document["entries"]), total)


def _walk(folder: Path, without: Collection[Path]) -> Iterator[Path]:
    """Everything below, folders before what is in them, in the order of names."""
    try:
        names = sorted(os.listdir(folder))
    except FileNotFoundError:
        return
    for name in names:
        path = folder / name
        if path in without:
            continue
        yield path
        if path.is_dir() and not path.is_symlink():
            yield from _walk(path, without)


def _entry(
    folder: Path, path: Path, seen: dict[tuple[int, int], str], out: int
) -> dict[str, Any] | None:
    try:
        status = path.lstat()
    except FileNotFoundError:
        return None
    entry: dict[str, Any] = {
        # Names that are not UTF-8 hold surrogates, which JSON escapes and reads back.
        "path": str(path.relative_to(folder)),
        "mode": stat.S_IMODE(status.st_mode),
        "uid": status.st_uid,
        "gid": status.st_gid,
        "mtime_ns": status.st_mtime_ns,
    }
    identity = (status.st_dev, status.st_ino)
    if stat.S_ISDIR(status.st_mode):
        return entry | {"type": "dir"}
    if identity in seen:
        return entry | {"type": "link", "target": seen[identity]}
    seen[identity] = entry["path"]
    if stat.S_ISREG(status.st_mode):
        size, extents = _copy_out(path, out)
        return entry | {"type": "file", "size": size, "extents": extents}
    if stat.S_ISLNK(status.st_mode):
        return entry | {"type": "symlink", "target": os.readlink(path)}
    return entry | {"type": "fifo"} if stat.S_ISFIFO(status.st_mode) else None


def _copy_out(path: Path, out: int) -> tuple[int, list[list[int]]]:
    """Append a file's data; returns its size and [offset, length, place in the data] triples."""
    extents: list[list[int]] = []
    with open(path, "rb", opener=_no_follow) as file:
        source = file.fileno()
        size = os.fstat(source).st_size
        for start, end in _data_ranges(source, size):
            place = os.lseek(out, 0, os.SEEK_CUR)
            _copy(source, start, out, place, end - start)
            os.lseek(out, place + end - start, os.SEEK_SET)
            extents.append([start, end - start, place])
    return size, extents


def _data_ranges(descriptor: int, size: int) -> Iterator[tuple[int, int]]:
    offset = 0
    while offset < size:
        try:
            start = os.lseek(descriptor, offset, os.SEEK_DATA)
        except OSError as error:
            if error.errno == errno.ENXIO:
                return
            raise
        end = min(os.lseek(descriptor, start, os.SEEK_HOLE), size)
        yield start, end
        offset = end


def _copy(source: int, start: int, out: int, place: int, length: int) -> None:
    os.lseek(out, place, os.SEEK_SET)
    while length > 0:
        count = os.sendfile(out, source, start, min(length, 1 << 30))
        if count == 0:
            raise OSError(errno.EIO, "a file became shorter while it was copied")
        start += count
        length -= count


def _read_index(index: Path) -> dict[str, Any]:
    try:
        document = json.loads(read_regular(index, MAX_INDEX))
        is_ours = (document["format"], document["kind"]) == (_FORMAT, _KIND)
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise _damaged(index, str(error)) from None
    if not is_ours or not isinstance(document.get("entries"), list):
        raise _damaged(index, "it is not a file set of format 1")
    return document  # type: ignore[no-any-return]


def _create(folders: _Folders, entry: dict[str, Any], source: int, index: Path, total: int) -> None:
    try:
        path = folders.target(entry)
        kind = entry["type"]
        if kind != "dir":
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)
        if kind == "file":
            _copy_in(path, entry, source, total)
            return
        if kind == "link":
            os.link(folders.target({"path": entry["target"]}), path, follow_symlinks=False)
            return
        if kind == "dir":
            _make_folder(path, index)
        elif kind == "symlink":
            os.symlink(_text(entry["target"]), path)
        elif kind == "fifo":
            os.mkfifo(path)
        else:
            raise _damaged(index, f"holds an entry of type {kind!r}")
        os.chown(path, entry["uid"], entry["gid"], follow_symlinks=False)
        if kind != "symlink":
            os.chmod(path, entry["mode"] & 0o7777)
            _set_times(path, entry)
    except (KeyError, TypeError, ValueError) as error:
        raise _damaged(index, f"{error}") from None


def _make_folder(path: str, index: Path) -> None:
    try:
        os.mkdir(path)
    except FileExistsError:
        if not stat.S_ISDIR(os.lstat(path).st_mode):
            raise _damaged(index, f"holds a folder where {path} is something else") from None


def _copy_in(path: str, entry: dict[str, Any], source: int, total: int) -> None:
    """All by the file's descriptor: a compiler's cache is a thousand files, and time counts."""
    size = entry["size"]
    if not 0 <= size <= _MAX_FILE:
        raise ValueError(f"size {size} of {path}")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(path, flags, 0o600)
    try:
        end = 0
        for offset, length, place in entry["extents"]:
            if min(offset, length, place) < 0 or offset + length > size or place + length > total:
                raise ValueError(f"an extent of {path} is out of bounds")
            _copy(source, place, descriptor, offset, length)
            end = offset + length
        if end != size:
            os.ftruncate(descriptor, size)
        made = os.fstat(descriptor)
        if (made.st_uid, made.st_gid) != (entry["uid"], entry["gid"]):
            os.fchown(descriptor, entry["uid"], entry["gid"])
        os.fchmod(descriptor, entry["mode"] & 0o7777)
        os.utime(descriptor, ns=(entry["mtime_ns"], entry["mtime_ns"]))
    finally:
        os.close(descriptor)


class _Folders:
    """Places of entries; their parents were created by earlier entries, never by a symlink.

    A parent is looked at once: while a set is put back, an entry can take nothing's place but a
    file's or a link's.
    """

    def __init__(self, root: Path, index: Path) -> None:
        self._root = os.fspath(root)
        self._index = index
        self._known: set[str] = set()

    def target(self, entry: dict[str, Any]) -> str:
        name = _text(entry["path"])
        parts = name.split("/")
        if not name or any(part in ("", ".", "..") for part in parts) or "\0" in name:
            raise _damaged(self._index, f"holds the path {name!r}")
        parent = self._root
        for part in parts[:-1]:
            parent = f"{parent}/{part}"
            if parent in self._known:
                continue
            if not stat.S_ISDIR(os.lstat(parent).st_mode):
                raise _damaged(
                    self._index, f"path {name!r} goes through something that is no folder"
                )
            self._known.add(parent)
        return f"{parent}/{parts[-1]}"


def _set_times(path: str, entry: dict[str, Any]) -> None:
    os.utime(path, ns=(entry["mtime_ns"], entry["mtime_ns"]), follow_symlinks=False)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError("a path is not text")
    return value


def _private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW, 0o600)


def _no_follow(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW)


def _damaged(index: Path, reason: str) -> ColdSnapError:
    return ColdSnapError(
        "image.file-set-damaged",
        f"{index.name} is damaged: {reason}",
        remedy="restore another capture, or capture again",
    )
