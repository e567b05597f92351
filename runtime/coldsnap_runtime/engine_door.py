"""The way to an engine: who it is, on which ports it listens inside its unit, where its log is."""

from __future__ import annotations

import contextlib
import os
import select
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from coldsnap.artifact.errors import ColdSnapError
from coldsnap_runtime.engine_log import exit_report, log_tail
from coldsnap_runtime.generation_notes import PAYLOAD, read_note
from coldsnap_runtime.process_table import open_pidfd
from coldsnap_runtime.unit_init import INSIDE_CONTROL, INSIDE_PAYLOAD
from coldsnap_runtime.unit_record import UnitStore

if TYPE_CHECKING:
    import socket
    from collections.abc import Iterator, Mapping
    from pathlib import Path
    from typing import Self

    from coldsnap_runtime.unit_record import GenerationPaths, ProcessRef, UnitRecord

PACK_NAME = "payload.pack"
INDEX_NAME = "payload.index.json"
"""Names of a payload and of its index, in the control folder and below the payload mount."""


@dataclass(frozen=True)
class EngineDoor:
    """Attributes tell apart inside (paths and ports that the engine knows) and host."""

    unit: str
    generation: int
    init: ProcessRef
    ports: Mapping[str, int]
    """Name -> the port inside."""
    log: Path
    """On the host."""
    status: Path
    """On the host: how PID 1 saw the root end."""
    places: Mapping[str, str] = field(default_factory=dict)
    """``{dir}``, ``{payload}``, ``{index}`` -> path inside; ``{provider}`` -> native, recovery
    or auto: where the weights of a restored engine may come from."""

    @property
    def where(self) -> str:
        return f"unit {self.unit}"

    def port(self, name: str) -> int:
        """Raises ColdSnapError ``engine.unknown-port``."""
        if name.isdigit() and 0 < int(name) <= 65535:  # noqa: PLR2004  (the largest port)
            return int(name)
        if name not in self.ports:
            known = ", ".join(sorted(self.ports)) or "none"
            raise ColdSnapError(
                "engine.unknown-port", f"the unit has no port {name!r} ({known})", self.where
            )
        return self.ports[name]

    def died(self) -> ColdSnapError:
        """The error for an engine whose process tree is gone."""
        how = exit_report(self.status) or "is gone"
        return ColdSnapError(
            "engine.died",
            f"the engine of generation {self.generation} {how}",
            self.where,
            details=log_tail(self.log),
            remedy="read the log's last lines; fix the cause, then launch or restore again",
            changed=True,
        )


def door_of(store: UnitStore, record: UnitRecord) -> EngineDoor:
    """Raises ColdSnapError ``engine.died`` if the generation has no process."""
    paths = store.paths(record.unit, record.generation)
    if record.init is None:
        raise ColdSnapError(
            "unit.not-running", "the generation has no process", f"unit {record.unit}"
        )
    return EngineDoor(
        unit=record.unit,
        generation=record.generation,
        init=record.init,
        ports={port.name: port.inner for port in record.ports},
        log=paths.engine_log,
        status=paths.work / "status",
        places=_places(record, paths),
    )


def _places(record: UnitRecord, paths: GenerationPaths) -> dict[str, str]:
    """A payload that lies in the control folder is the newer one: the engine wrote it there."""
    own = (paths.control / PACK_NAME).exists() or record.artifact is None
    folder = INSIDE_CONTROL if own else INSIDE_PAYLOAD
    choice = {} if own else read_note(paths, PAYLOAD).get("choice") or {}
    return {
        "dir": INSIDE_CONTROL,
        "payload": f"{folder}/{PACK_NAME}",
        "index": f"{folder}/{INDEX_NAME}",
        "provider": str(choice.get("allowed") or "auto"),
    }


def drop_export(paths: GenerationPaths) -> None:
    """Free what the engine exported for a capture: it serves again and has its weights.

    A capture holds its own link to the same bytes; a restored engine has the artifact's.
    """
    for name in (PACK_NAME, INDEX_NAME):
        with contextlib.suppress(OSError):
            (paths.control / name).unlink()


class Watch:
    """Notices the end of an engine's process tree at once."""

    def __init__(self, init: ProcessRef) -> None:
        self._descriptor = open_pidfd(init.pid, init.start)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)

    def has_ended(self, wait: float = 0.0) -> bool:
        """True as soon as the engine is gone, False after `wait` seconds."""
        if self._descriptor is None:
            return True
        poll = select.poll()
        poll.register(self._descriptor, select.POLLIN)
        return bool(poll.poll(wait * 1000))

    def readable(self, connection: socket.socket, wait: float) -> Iterator[str]:
        """What happened within `wait` seconds: ``data`` on the connection, ``end`` of the engine.

        Yields nothing when neither did.
        """
        poll = select.poll()
        poll.register(connection, select.POLLIN)
        if self._descriptor is not None:
            poll.register(self._descriptor, select.POLLIN)
        found = {descriptor for descriptor, _ in poll.poll(max(0.0, wait) * 1000)}
        if connection.fileno() in found:
            yield "data"
        if self._descriptor in found:
            yield "end"
