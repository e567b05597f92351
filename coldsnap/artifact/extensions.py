"""What ColdSnap adds to the published artifact format, all of it optional."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

from coldsnap.artifact.decode import Record
from coldsnap.artifact.rules import (
    AbsolutePath,
    Bytes,
    Count,
    Digest,
    Id,
    Line,
    Natural,
    Seconds,
    Wide,
)


@dataclass(frozen=True)
class MappedFile(Record):
    """A file outside the capsule that the processes map; a restore needs the same one."""

    path: AbsolutePath
    bytes: Bytes
    mtime_ns: int | None = None
    sha256: Digest | None = None
    unit: Id | None = None


@dataclass(frozen=True)
class Extensions(Record):
    answers: Annotated[tuple[Mapping[str, Any], ...], Count(0, 1024)] = ()
    """Prompts with the tokens and log-probabilities that a restore must give again."""
    cold_start_seconds: Seconds | None = None
    """Cold start to the first token, measured before the capture."""
    cpu_flags: Annotated[tuple[Line, ...], Count(0, 4096)] = ()
    """CPU features of the captured machine; a restore needs them all."""
    sizes: Mapping[Id, Natural] = field(default_factory=dict)
    """Bytes by kind: process, payload, shm, caches, kv_discarded."""
    processes: Annotated[tuple[Mapping[str, Any], ...], Count(0, 65536)] = ()
    """The captured tree: pid, name and memory of each process."""
    mapped_files: Annotated[tuple[MappedFile, ...], Count(0, 65536)] = ()
    created_unix_ns: Wide | None = None
    """When it was published, by that host's clock; for people, never compared."""
    notes: Mapping[Id, Any] = field(default_factory=dict)
    """Facts of an engine pack or of the runtime that only they read."""
