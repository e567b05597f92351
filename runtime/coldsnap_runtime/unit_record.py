"""What a host knows of its units: one record per generation, and the folders beside it.

``{state_dir}/units/<unit>/<generation>/`` holds ``unit.json`` (the record), ``control/`` (bound
at /run/coldsnap/unit inside the unit: logs, payload files), ``tmp/`` (its /tmp) and ``caches/``.
A generation is one process tree; its number is never used twice.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from coldsnap.artifact.errors import ColdSnapError
from coldsnap.artifact.files import fsync_dir, read_regular, write_atomic
from coldsnap_runtime.generation_paths import GenerationPaths
from coldsnap_runtime.process_table import is_running, stat
from coldsnap_runtime.timing import boot_id

if TYPE_CHECKING:
    from collections.abc import Iterator

LIVE_STATES = ("starting", "serving", "quiesced", "restored", "hydrated", "sleeping")
__all__ = ["GenerationPaths", "PortRecord", "ProcessRef", "UnitRecord", "UnitStore"]

STATES = (*LIVE_STATES, "stopped", "dead")

_MAX_RECORD = 4 << 20
_UNIT_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")


@dataclass(frozen=True)
class ProcessRef:
    """A process as the host sees it; (pid, start) within a boot is never used twice."""

    pid: int
    start: int
    """Clock ticks since boot."""
    boot: str

    @classmethod
    def of(cls, pid: int) -> ProcessRef:
        """Raises ProcessLookupError if `pid` is gone."""
        found = stat(pid)
        if found is None:
            raise ProcessLookupError(pid)
        return cls(pid, found.start, boot_id())

    @property
    def is_alive(self) -> bool:
        return self.boot == boot_id() and is_running(self.pid, self.start)


@dataclass(frozen=True)
class PortRecord:
    """`inner` is what the engine listens on; `host`:`port` is where the host offers it."""

    name: str
    inner: int
    host: str
    port: int


@dataclass(frozen=True)
class UnitRecord:
    unit: str
    generation: int
    state: str
    """One of `STATES`, as last written; see `UnitStore.load` for what is true now."""
    engine: str
    launch_sha256: str
    since: float
    """Unix seconds of the last change of state."""
    model: Any = None
    request_sha256: str = ""
    run: str = ""
    artifact: str | None = None
    """Digest of the manifest it was restored from."""
    init: ProcessRef | None = None
    """PID 1 of the unit's namespaces: while it lives, so does the generation. Until there is
    one, the process that starts the unit."""
    root_pid: int = 0
    """Number of the dump's root process inside the unit's PID namespace."""
    portmap: ProcessRef | None = None
    exposed: bool = False
    ports: tuple[PortRecord, ...] = ()
    network: str = "private"
    runtime: str = "process"
    container: str = ""
    launch: dict[str, Any] = field(default_factory=dict)
    """The launch object of the request; a restored generation has its capture's."""
    external_files: tuple[str, ...] = ()
    """Paths inside the unit that are re-attached at a restore instead of being checked."""

    @property
    def is_live(self) -> bool:
        return self.state in LIVE_STATES

    def to_json(self) -> dict[str, Any]:
        return {"format": 1, "kind": "coldsnap-unit", **asdict(self)}

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> UnitRecord:
        """Raises KeyError, TypeError or ValueError for what is not such a record."""
        fields = dict(value)
        if fields.pop("format") != 1 or fields.pop("kind") != "coldsnap-unit":
            raise ValueError("not a unit record of format 1")
        for name in ("init", "portmap"):
            if fields[name] is not None:
                fields[name] = ProcessRef(**fields[name])
        fields["ports"] = tuple(PortRecord(**port) for port in fields["ports"])
        fields["external_files"] = tuple(fields["external_files"])
        return cls(**fields)


class UnitStore:
    """The records of one state folder."""

    def __init__(self, state_dir: str | os.PathLike[str]) -> None:
        self._root = Path(state_dir) / "units"

    def units(self) -> list[str]:
        return sorted(p.name for p in _entries(self._root) if _UNIT_ID.fullmatch(p.name))

    def generations(self, unit: str) -> list[UnitRecord]:
        """Oldest first; folders without a readable record are left out."""
        numbers = self._numbers(unit)
        found = (self.find(unit, number) for number in numbers)
        return [record for record in found if record is not None]

    def paths(self, unit: str, generation: int) -> GenerationPaths:
        return GenerationPaths(self._unit_dir(unit) / str(generation))

    def unit_dir(self, unit: str) -> Path:
        return self._unit_dir(unit)

    def find(self, unit: str, generation: int) -> UnitRecord | None:
        """The record as it is true now: a generation whose init is gone is ``dead``.

        Raises:
            ColdSnapError: ``unit.record-damaged``.
        """
        path = self.paths(unit, generation).record
        if not path.exists():
            return None
        try:
            record = UnitRecord.from_json(json.loads(read_regular(path, _MAX_RECORD)))
        except (ValueError, KeyError, TypeError) as error:
            raise ColdSnapError(
                "unit.record-damaged",
                f"{path} is not a unit record: {error}",
                remedy="stop what is left of the unit and remove that folder",
            ) from None
        return _as_it_is(record)

    def load(self, unit: str, generation: int | None = None) -> UnitRecord:
        """One generation; without a number the newest live one, else the newest.

        Raises:
            ColdSnapError: ``unit.unknown``, ``unit.record-damaged``.
        """
        if generation is not None:
            record = self.find(unit, generation)
            if record is None:
                raise _unknown(f"unit {unit} has no generation {generation}")
            return record
        records = self.generations(unit)
        if not records:
            raise _unknown(f"there is no unit {unit} on this host")
        live = [record for record in records if record.is_live]
        return (live or records)[-1]

    def live(self, unit: str, generation: int | None = None) -> UnitRecord:
        """As `load`, but it must live.

        Raises:
            ColdSnapError: ``unit.unknown``, ``unit.not-running``, ``unit.record-damaged``.
        """
        record = self.load(unit, generation)
        if not record.is_live:
            raise ColdSnapError(
                "unit.not-running",
                f"generation {record.generation} of unit {unit} is {record.state}",
                where=f"unit {unit}",
                remedy="launch or restore the unit first",
            )
        return record

    def create(self, unit: str) -> tuple[int, GenerationPaths]:
        """A fresh, empty generation folder; two callers never get the same number.

        Raises:
            ColdSnapError: ``unit.bad-id``; OSError as the system says.
        """
        folder = self._unit_dir(unit)
        folder.mkdir(parents=True, exist_ok=True)
        with self.locked(unit):
            number = self._last_number(unit) + 1
            paths = GenerationPaths(folder / str(number))
            paths.folder.mkdir(mode=0o711)
            write_atomic(folder / "last", f"{number}\n".encode(), 0o644)
        return number, paths

    def save(self, record: UnitRecord) -> None:
        """After a power cut the old record does as well as the new one: both say ``dead``."""
        data = json.dumps(record.to_json(), indent=1, sort_keys=True).encode() + b"\n"
        path = self.paths(record.unit, record.generation).record
        write_atomic(path, data, 0o600, sync="data")

    def update(self, record: UnitRecord, **changes: Any) -> UnitRecord:
        """Write `changes` over what is on disk now, and return that."""
        with self.locked(record.unit):
            current = self.find(record.unit, record.generation) or record
            changed = replace(current, **changes)
            self.save(changed)
        return changed

    @contextmanager
    def locked(self, unit: str) -> Iterator[None]:
        """Short, exclusive: for reading a record and writing it back."""
        folder = self._unit_dir(unit)
        folder.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)

    def forget(self, unit: str, generation: int) -> None:
        """Make the removal of a generation's folder durable; its number stays used."""
        del generation
        fsync_dir(self._unit_dir(unit))

    def _unit_dir(self, unit: str) -> Path:
        if not _UNIT_ID.fullmatch(unit):
            raise ColdSnapError("unit.bad-id", f"{unit!r} cannot be the id of a unit")
        return self._root / unit

    def _numbers(self, unit: str) -> list[int]:
        names = (p.name for p in _entries(self._unit_dir(unit)))
        return sorted(int(name) for name in names if name.isdigit())

    def _last_number(self, unit: str) -> int:
        try:
            remembered = int(read_regular(self._unit_dir(unit) / "last", 64))
        except (ColdSnapError, ValueError):
            remembered = 0
        return max([remembered, *self._numbers(unit)])


def _entries(folder: Path) -> list[Path]:
    try:
        return [entry for entry in folder.iterdir() if entry.is_dir()]
    except FileNotFoundError:
        return []


def _as_it_is(record: UnitRecord) -> UnitRecord:
    if record.is_live and (record.init is None or not record.init.is_alive):
        return replace(record, state="dead", exposed=False)
    return record


def _unknown(message: str) -> ColdSnapError:
    return ColdSnapError(
        "unit.unknown", message, remedy="see what is there: coldsnap status -i INVENTORY"
    )
