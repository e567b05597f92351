"""One round of ``payload bench --against``: ceilings, ours, the others, each once."""

from __future__ import annotations

import ctypes
import hashlib
import math
import mmap
import os
import statistics
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from coldsnap.artifact.errors import ColdSnapError
from coldsnap_runtime.hydrate.bench_ceilings import read_rate
from coldsnap_runtime.hydrate.bench_file import BenchFile, HostMemory
from coldsnap_runtime.hydrate.bench_peers import PEERS, Peer, PeerError
from coldsnap_runtime.hydrate.bench_tensors import TensorFile
from coldsnap_runtime.hydrate.library import Library
from coldsnap_runtime.hydrate.page_cache import cached_share
from coldsnap_runtime.hydrate.region import Region
from coldsnap_runtime.hydrate.session import Session
from coldsnap_runtime.hydrate.structures import Algorithm, Io, Place

OURS = "coldsnap, verified"
_UNVERIFIED = "coldsnap, unverified"
_FRESH = "coldsnap, verified, new memory"
"""Memory that is taken within the clock, page by page, as the others take theirs on a host."""
_READ, _PINNED, _DIRECT = "plain parallel read", "pinned copy", "O_DIRECT read"


@dataclass(frozen=True)
class AgainstOptions:
    size: int
    against: tuple[str, ...] = tuple(PEERS)
    folder: Path | None = None
    device: str = "host"
    rounds: int = 3
    cold: bool = True
    keep: bool = False
    peer_python: str | None = None
    deadline: float = 120.0
    """Seconds for one load of a peer."""
    budget: float = 0.0
    """Seconds after which no load is begun any more; 0: no end."""
    cuda_library: str | None = None
    shape: dict[str, int] = field(default_factory=dict)
    """``threads``, ``slots``, ``slot_bytes`` of our sessions."""


@dataclass
class Row:
    """One loader, or a ceiling; rates in bytes per second, one per round."""

    name: str
    is_ceiling: bool = False
    version: str = ""
    reason: str = ""
    warm: list[float] = field(default_factory=list)
    cold: list[float] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        shown: dict[str, Any] = {"name": self.name, "ceiling": self.is_ceiling}
        for kind, rates in (("warm", self.warm), ("cold", self.cold)):
            median, best = (statistics.median(rates), max(rates)) if rates else (None, None)
            shown[kind] = {"rate": median, "best": best, "rounds": len(rates)}
        return shown | {"version": self.version or None, "reason": self.reason or None}


Measure = Callable[[], float]


class Against:
    """Everything that one round measures, and what came of it."""

    def __init__(
        self, library: Library, options: AgainstOptions, file: TensorFile, stack: ExitStack
    ) -> None:
        self._options, self._file = options, file
        self._is_cuda = options.device == "cuda"
        self._cores = len(os.sched_getaffinity(0))
        shape: dict[str, Any] = {**options.shape, "cuda_library": options.cuda_library}
        place = Place.CUDA if self._is_cuda else Place.HOST
        self._session = stack.enter_context(Session(library, place, **shape))
        self._direct = Session(library, Place.NOWHERE, io=Io.DIRECT, **shape)
        stack.callback(self._direct.close)
        size = file.data_bytes
        self._memory = HostMemory(min(size, 4 << 30) if self._is_cuda else size)
        self._region: Region | None = None
        if self._is_cuda:
            self._region = Region(library, size, cuda_library=options.cuda_library)
            stack.callback(self._region.free)
        self._address = self._region.address if self._region else self._memory.address
        self._rows: dict[str, Row] = {}
        self._loaders: list[tuple[str, Callable[[int], float]]] = [
            (OURS, lambda seed: self._hydrate(Algorithm.BLAKE3, seed)),
            (_UNVERIFIED, lambda seed: self._hydrate(Algorithm.UNVERIFIED, seed)),
        ]
        if not self._is_cuda:
            self._loaders.append((_FRESH, lambda _: self._hydrate_fresh()))
        self._cached = 0.0
        self._until = time.monotonic() + options.budget if options.budget else math.inf

    def add(self, peer: Peer) -> None:
        row = self._row(peer.name)
        row.version, row.reason = peer.version, peer.reason

        def load(seed: int) -> float:
            samples = self._file.samples(seed)
            expected = self._file.expected(samples)
            try:
                return peer.load(self._file.path, samples, expected, self._file.data_bytes)
            finally:
                row.reason = peer.reason

        self._loaders.append((peer.name, load))

    def warm_round(self, number: int) -> None:
        """All of the file in the page cache."""
        if time.monotonic() > self._until:
            return
        for name, measure in self._ceilings():
            self._warm()
            rate = measure()
            if number:
                self._row(name, is_ceiling=True).warm.append(rate)
        for name, load in self._turned(number):
            if time.monotonic() < self._until:
                self._warm()
            self._take(name, load, number, self._row(name).warm if number else [])

    def cold_round(self, number: int) -> None:
        """None of the file in the page cache, before each load."""
        self._drop()
        if time.monotonic() > self._until:
            return
        metrics = self._direct.read(self._file.transfer(0, Algorithm.UNVERIFIED))
        self._row(_DIRECT, is_ceiling=True).cold.append(metrics.bytes / metrics.wall_ns * 1e9)
        for name, load in self._turned(number):
            if time.monotonic() < self._until:
                self._drop()
            self._take(name, load, 1000 + number, self._row(name).cold)

    def result(self) -> dict[str, Any]:
        return {
            "machine": {
                "cores": self._cores,
                "load": [round(value, 2) for value in os.getloadavg()],
                "device": self._options.device,
            },
            "size": self._file.data_bytes,
            "tensors": len(self._file.tensors),
            "rounds": self._options.rounds,
            "cold_cached": self._cached if self._options.cold else None,
            "rows": [row.to_json() for row in self._ordered()],
        }

    def _ordered(self) -> list[Row]:
        """Ceilings, then ours, then the others."""
        names = [name for name, row in self._rows.items() if row.is_ceiling]
        names += [name for name, _ in self._loaders if name in self._rows]
        return [self._rows[name] for name in names]

    def _ceilings(self) -> list[tuple[str, Measure]]:
        plain = BenchFile(self._file.path, self._file.size, {})
        found: list[tuple[str, Measure]] = [
            (_READ, lambda: read_rate(plain, self._memory, self._cores))
        ]
        if self._is_cuda:
            found.append((_PINNED, self._pinned))
        return found

    def _turned(self, number: int) -> list[tuple[str, Callable[[int], float]]]:
        """The loaders that still work, beginning with another one each round."""
        at = number % len(self._loaders)
        order = self._loaders[at:] + self._loaders[:at]
        return [loader for loader in order if not self._row(loader[0]).reason]

    def _take(self, name: str, load: Callable[[int], float], seed: int, rates: list[float]) -> None:
        if time.monotonic() > self._until:
            return
        try:
            rates.append(load(seed))
        except PeerError as error:
            self._row(name).reason = str(error)

    def _row(self, name: str, *, is_ceiling: bool = False) -> Row:
        return self._rows.setdefault(name, Row(name, is_ceiling))

    def _warm(self) -> None:
        if cached_share(self._file.path) < 1:
            self._file.warm()

    def _drop(self) -> None:
        self._file.drop()
        self._cached = max(self._cached, cached_share(self._file.path))

    def _hydrate(self, algorithm: Algorithm, seed: int) -> float:
        """One hydration, looked at in the same places as the others'.

        Raises:
            ColdSnapError: ``bench.differs``: the bytes are not those of the file.
        """
        metrics = self._session.read(self._file.transfer(self._address, algorithm))
        samples = self._file.samples(seed)
        for sample, expected in zip(samples, self._file.expected(samples), strict=True):
            at, length = self._file.place(sample), sample[2]
            if self._region:
                piece = self._region.get(at, length)
            else:
                piece = bytes(self._memory.view[at : at + length])
            if hashlib.sha256(piece).hexdigest() != expected:
                raise ColdSnapError(
                    "bench.differs",
                    f"tensor {sample[0]} differs from the file after hydration",
                    where=str(self._file.path),
                )
        return float(metrics.bytes / metrics.wall_ns * 1e9)

    def _hydrate_fresh(self) -> float:
        size = self._file.data_bytes
        begin = time.monotonic()
        memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        held = ctypes.c_char.from_buffer(memory)
        self._session.read(self._file.transfer(ctypes.addressof(held), Algorithm.BLAKE3))
        seconds = time.monotonic() - begin
        del held
        memory.close()
        return size / seconds

    def _pinned(self) -> float:
        metrics = self._session.copy_rate(self._address, self._file.data_bytes)
        return float(metrics.bytes / metrics.wall_ns * 1e9)
