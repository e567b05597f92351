"""What a dynamically linked program needs, read from the file itself.

It may be of another age of libc, so that running ``ldd`` on it would tell nothing.
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import NamedTuple

from coldsnap.artifact.errors import ColdSnapError

_PT_LOAD, _PT_DYNAMIC, _PT_INTERP = 1, 2, 3
_DT_NEEDED, _DT_STRTAB = 1, 5


class _Segment(NamedTuple):
    kind: int
    offset: int
    address: int
    size: int


def interpreter(path: Path) -> str | None:
    """Absolute path of the program's loader; None for a static one.

    Raises:
        ColdSnapError: ``criu.unusable`` if it is not a 64-bit little-endian ELF file.
    """
    data = path.read_bytes()
    for segment in _segments(data, path):
        if segment.kind == _PT_INTERP:
            text = data[segment.offset : segment.offset + segment.size]
            return text.rstrip(b"\0").decode("utf-8")
    return None


def needed_libraries(path: Path, folders: list[Path]) -> list[Path]:
    """Files of all libraries that the program needs, directly and through others.

    Raises:
        ColdSnapError: ``criu.unusable`` naming a library that is in none of `folders`.
    """
    found: dict[str, Path] = {}
    todo = [path]
    while todo:
        current = todo.pop()
        for name in _needed(current):
            if name in found:
                continue
            place = next((f / name for f in folders if (f / name).exists()), None)
            if place is None:
                raise ColdSnapError("criu.unusable", f"{current.name} needs {name}: not found")
            found[name] = place
            todo.append(place)
    return [found[name] for name in sorted(found)]


def _needed(path: Path) -> list[str]:
    data = path.read_bytes()
    segments = _segments(data, path)
    dynamic = next((s for s in segments if s.kind == _PT_DYNAMIC), None)
    if dynamic is None:
        return []
    entries = list(struct.iter_unpack("<qQ", data[dynamic.offset : dynamic.offset + dynamic.size]))
    table = next((value for tag, value in entries if tag == _DT_STRTAB), 0)
    start = _file_offset(segments, table)
    names = []
    for tag, value in entries:
        if tag == 0:
            break
        if tag == _DT_NEEDED:
            begin = start + value
            names.append(data[begin : data.index(b"\0", begin)].decode("utf-8"))
    return names


def _segments(data: bytes, path: Path) -> list[_Segment]:
    if data[:6] != b"\x7fELF\x02\x01":
        raise ColdSnapError("criu.unusable", f"{path} is not a 64-bit little-endian ELF file")
    (offset,) = struct.unpack_from("<Q", data, 32)
    size, count = struct.unpack_from("<HH", data, 54)
    segments = []
    for number in range(count):
        kind, _, at, address, _, length = struct.unpack_from(
            "<IIQQQQ", data, offset + number * size
        )
        segments.append(_Segment(kind, at, address, length))
    return segments


def _file_offset(segments: list[_Segment], address: int) -> int:
    for segment in segments:
        if segment.kind == _PT_LOAD and segment.address <= address < segment.address + segment.size:
            return address - segment.address + segment.offset
    return address
