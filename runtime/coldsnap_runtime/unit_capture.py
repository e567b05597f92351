"""``capture.json``: what a restore must know of a capture beside CRIU's images."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from coldsnap.artifact.errors import ColdSnapError
from coldsnap.artifact.files import read_regular
from coldsnap_runtime.mapped_files import MappedFile
from coldsnap_runtime.unit_processes import UnitProcess

CAPTURE_FILE = "capture.json"
_MAX_BYTES = 64 << 20
_FORMAT = 1
_KIND = "coldsnap-capture"


@dataclass(frozen=True)
class FileSetRecord:
    """Files that travel with the image: ``files/NAME.json`` and ``files/NAME.data``."""

    name: str
    path: str
    """Where they are inside the unit."""
    files: int
    bytes: int


@dataclass(frozen=True)
class Capture:
    capture_id: str
    request_sha256: str
    unit: str
    engine: str
    model: Any
    launch: dict[str, Any]
    launch_sha256: str
    root_pid: int
    last_pid: int
    """The highest number in use; what is started after a restore comes after it."""
    network: str
    file_sets: tuple[FileSetRecord, ...]
    mapped_files: tuple[MappedFile, ...]
    deleted_files: tuple[str, ...]
    """Deleted files outside the unit that were open; CRIU carries them (up to its limit)."""
    folders: tuple[str, ...]
    """Working folders of the processes."""
    processes: tuple[UnitProcess, ...]
    image_id: str = ""
    """Of a container: digest of its image's configuration."""
    cuda: dict[str, Any] | None = None
    """Of a unit with CUDA state: see `coldsnap_runtime.unit_cuda`."""
    template: dict[str, Any] | None = None
    """Of a unit that was captured before its engine started: see `unit_template`."""
    process_image: dict[str, Any] | None = None
    """What of the image was rewritten and proven: see `coldsnap_runtime.image_proof`."""

    def with_files(self, files: Iterable[MappedFile]) -> Capture:
        return replace(self, mapped_files=tuple(files))

    def to_json(self) -> dict[str, Any]:
        return {"format": _FORMAT, "kind": _KIND, **asdict(self)}

    @classmethod
    def read(cls, image: Path) -> Capture:
        """The map of the image in folder `image`.

        Raises:
            ColdSnapError: ``image.incomplete``, ``image.damaged``.
        """
        path = image / CAPTURE_FILE
        if not path.exists():
            raise ColdSnapError("image.incomplete", f"the image has no {CAPTURE_FILE}")
        try:
            return cls._from_json(json.loads(read_regular(path, _MAX_BYTES)))
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise ColdSnapError(
                "image.damaged", f"{CAPTURE_FILE} of the image is not one: {error}"
            ) from None

    @classmethod
    def _from_json(cls, value: dict[str, Any]) -> Capture:
        fields = dict(value)
        if (fields.pop("format"), fields.pop("kind")) != (_FORMAT, _KIND):
            raise ValueError("not a capture of format 1")
        fields["file_sets"] = tuple(FileSetRecord(**item) for item in fields["file_sets"])
        fields["mapped_files"] = tuple(map(MappedFile.from_json, fields["mapped_files"]))
        fields["processes"] = tuple(_process(item) for item in fields["processes"])
        for name in ("deleted_files", "folders"):
            fields[name] = tuple(fields[name])
        return cls(**fields)


def object_of(capture: Path, path: Path, sha256: str) -> dict[str, Any]:
    """The row of one file of the capture: role, owner (process or file set), path, size, digest."""
    relative = path.relative_to(capture)
    role, owner = _role(relative)
    return {
        "role": role,
        "owner": owner,
        "path": relative.as_posix(),
        "bytes": path.stat().st_size,
        "sha256": sha256,
    }


def _role(relative: Path) -> tuple[str, str]:
    top = relative.parts[0]
    if top in ("ext", "mmap"):
        return "criu-overlay", top
    if top == "images":
        number = relative.stem.partition("-")[2]
        return "criu", number if number.isdigit() else ""
    if top == "files":
        return relative.stem.partition("-")[0], relative.stem
    if top == "payload":
        return ("payload-index" if relative.suffix == ".json" else "payload"), ""
    return ("program" if top == "bin" else "capture"), ""


def _process(value: dict[str, Any]) -> UnitProcess:
    return UnitProcess(**{**value, "command": tuple(value["command"])})
