"""Sources of a payload pack: the tensors of safetensors files, or plain files as they are."""

from __future__ import annotations

import json
import mmap
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from coldsnap.artifact.errors import ColdSnapError
from coldsnap.artifact.files import is_folder, open_regular
from coldsnap.artifact.pack import ExtentSource

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

_MAX_HEADER: Final = 100 << 20
_SUFFIX: Final = ".safetensors"


@dataclass(frozen=True)
class _Mapped:
    """A file's bytes, mapped read-only; None for an empty file, which cannot be mapped."""

    path: Path
    size: int
    data: mmap.mmap | None


def sources(paths: Iterable[Path], stack: ExitStack) -> list[ExtentSource]:
    """Extents of all files, ordered by id; the files stay open until `stack` closes.

    Folders stand for the safetensors files in them.

    Raises:
        ColdSnapError: ``payload.bad-safetensors``, ``payload.duplicate``, ``payload.no-files``,
            and what opening a file raises.
    """
    found: dict[str, ExtentSource] = {}
    for path in _files(paths):
        mapped = _map(path, stack)
        extents = _tensors(mapped) if path.suffix == _SUFFIX else [_whole(mapped)]
        for extent in extents:
            if extent.id in found:
                raise ColdSnapError(
                    "payload.duplicate", f"{path} holds {extent.id!r} again", where=str(path)
                )
            found[extent.id] = extent
    if not found:
        raise ColdSnapError("payload.no-files", "there is nothing to pack")
    return [found[name] for name in sorted(found)]


def _files(paths: Iterable[Path]) -> list[Path]:
    files: list[Path] = []
    for path in paths:
        files.extend(sorted(path.glob(f"*{_SUFFIX}")) if is_folder(path) else [path])
    return files


def _map(path: Path, stack: ExitStack) -> _Mapped:
    file = stack.enter_context(open_regular(path))
    size = path.stat().st_size
    if not size:
        return _Mapped(path, 0, None)
    # The views of it that the writer holds end with the process; closing here would refuse.
    return _Mapped(path, size, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))


def _whole(mapped: _Mapped) -> ExtentSource:
    data: Any = mapped.data if mapped.data is not None else b""
    return ExtentSource(mapped.path.name, mapped.size, memoryview(data))


def _tensors(mapped: _Mapped) -> list[ExtentSource]:
    header, start = _header(mapped)
    extents = []
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        begin, end = _offsets(mapped, name, entry, start)
        view = memoryview(mapped.data or b"")[begin:end]
        attributes = {
            "dtype": str(entry.get("dtype")),
            "shape": ",".join(str(side) for side in entry.get("shape", ())),
        }
        extents.append(ExtentSource(name, end - begin, view, attributes))
    return extents


def _header(mapped: _Mapped) -> tuple[dict[str, Any], int]:
    """The header's object, and where the tensors' bytes begin."""
    data = mapped.data or b""
    length = int.from_bytes(data[:8], "little")
    if len(data) < 8 or not 2 <= length <= min(_MAX_HEADER, len(data) - 8):  # noqa: PLR2004
        raise _bad(mapped, "its header length is impossible")
    try:
        header = json.loads(data[8 : 8 + length])
    except (ValueError, RecursionError) as error:
        raise _bad(mapped, "its header is not JSON") from error
    if not isinstance(header, dict):
        raise _bad(mapped, "its header is not an object")
    return header, 8 + length


def _offsets(mapped: _Mapped, name: str, entry: Any, start: int) -> tuple[int, int]:
    offsets = entry.get("data_offsets") if isinstance(entry, dict) else None
    match offsets:
        case [int(begin), int(end)] if 0 <= begin <= end <= mapped.size - start:
            return start + begin, start + end
    raise _bad(mapped, f"tensor {name!r} has impossible offsets")


def _bad(mapped: _Mapped, why: str) -> ColdSnapError:
    return ColdSnapError(
        "payload.bad-safetensors",
        f"{mapped.path} is not a safetensors file: {why}",
    )
