"""What the engine's parameters do here: one line each, beside the ceilings of the same run.

``python3 -m coldsnap_runtime.hydrate.bench --device cuda --size 15GiB --variants``
"""

from __future__ import annotations

import math
import os
import statistics
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from coldsnap_runtime.hydrate.bench_ceilings import digest_rate, read_rate
from coldsnap_runtime.hydrate.bench_file import BenchFile, HostMemory
from coldsnap_runtime.hydrate.region import Region
from coldsnap_runtime.hydrate.report import clock_of, stages_of
from coldsnap_runtime.hydrate.session import Session
from coldsnap_runtime.hydrate.structures import (
    Algorithm,
    Digests,
    Engine,
    Io,
    Metrics,
    Place,
    Waits,
)

if TYPE_CHECKING:
    from coldsnap_runtime.hydrate.library import Library

_KIB, _MIB = 1 << 10, 1 << 20


@dataclass(frozen=True)
class Variant:
    name: str
    shape: dict[str, Any] = field(default_factory=dict)
    """Keywords of `Session`."""
    algorithms: tuple[Algorithm, ...] = (Algorithm.UNVERIFIED, Algorithm.BLAKE3)
    beside: bool = False
    """Other device memory is mapped and zeroed meanwhile, as an engine's KV cache is."""
    cold: bool = False
    """With the file out of the page cache, each time."""


def device_variants() -> list[Variant]:
    """Sizes of copies, threads, the size of the ring, and who digests."""
    by_processor = {"digests": Digests.PROCESSOR}
    return [
        Variant("as it comes"),
        Variant("memory mapped beside it", {}, (Algorithm.BLAKE3,), beside=True),
        Variant("threads that sleep", {"waits": Waits.SLEEP}),
        Variant("threads that spin", {"waits": Waits.SPIN}),
        *(Variant(f"copies of {n} MiB", {"block_bytes": n * _MIB}) for n in (2, 4, 16, 32)),
        *(
            Variant(
                f"{n} threads, ring 96 MiB",
                {"threads": n, "slots": 96 // n, "slot_bytes": _MIB},
            )
            for n in (6, 8, 12, 16, 24)
        ),
        *(
            Variant(
                f"16 threads, ring {n} MiB",
                {"threads": 16, "slots": 4, "slot_bytes": n * _MIB // 64},
            )
            for n in (32, 48, 64, 128, 256)
        ),
        Variant("16 threads, 16 MiB, ring 128 MiB",
                {"threads": 16, "slots": 4, "slot_bytes": 2 * _MIB, "block_bytes": 16 * _MIB}),
        Variant("processor's digests", by_processor, (Algorithm.BLAKE3, Algorithm.SHA256)),
        *(
            Variant(
                f"processor's digests, 16 threads of 3 x {n} KiB",
                {**by_processor, "threads": 16, "slots": 3, "slot_bytes": n * _KIB},
                (Algorithm.BLAKE3,),
            )
            for n in (512, 2048)
        ),
        *(
            Variant(f"cold, {engine.name.lower()}", {"engine": engine}, cold=True)
            for engine in (Engine.RING, Engine.CUFILE)
        ),
    ]  # fmt: skip


def host_variants() -> list[Variant]:
    """Threads and slots; every kind of digest."""
    every = (Algorithm.UNVERIFIED, Algorithm.BLAKE3, Algorithm.SHA256)
    return [
        Variant("as it comes", {}, every),
        *(Variant(f"{n} threads", {"threads": n}, every) for n in (2, 4, 8, 32)),
        *(Variant(f"slots of {n} MiB", {"slot_bytes": n * _MIB}, every) for n in (1, 4, 8)),
    ]


def run_variants(
    library: Library,
    file: BenchFile,
    *,
    is_cuda: bool,
    rounds: int,
    cuda_library: str | None,
    beside_bytes: int,
    budget: float,
    only: str,
    story: Callable[[str], None],
) -> dict[str, Any]:
    """Measure every variant; one line each goes to `story` at once.

    `beside_bytes` is the memory that is mapped beside a transfer; `budget` the seconds after which
    no variant is begun any more, 0: no end; `only` a part of the names of those wanted.

    Returns a JSON object: ``ceilings`` {name: bytes per second}, ``variants`` [{name, algorithm,
    rate, best, opening {part: seconds}, engine, engine_reason, stages}].

    Raises:
        ColdSnapError: ``hydrate.*``, ``file.*``.
    """
    with ExitStack() as stack:
        memory = HostMemory(min(file.size, 4 << 30) if is_cuda else file.size)
        address = memory.address
        if is_cuda:
            region = Region(library, file.size, cuda_library=cuda_library)
            stack.callback(region.free)
            address = region.address
        file.warm()
        ceilings = _ceilings(library, file, memory, story)
        if is_cuda:
            with Session(library, Place.CUDA, cuda_library=cuda_library) as session:
                ceilings["pinned copy"] = max(
                    _rate(session.copy_rate(address, file.size)) for _ in range(rounds)
                )
            story(f"{'pinned copy':<44} {ceilings['pinned copy'] / 1e9:6.1f} GB/s")
        found: list[dict[str, Any]] = []
        until = time.monotonic() + budget if budget else math.inf
        every = device_variants() if is_cuda else host_variants()
        for variant in (variant for variant in every if only in variant.name):
            shape = {"cuda_library": cuda_library, **variant.shape}
            place = Place.CUDA if is_cuda else Place.HOST
            mapping = Mapping(library, beside_bytes, cuda_library) if variant.beside else None
            with Session(library, place, io=Io.AUTO, **shape) as session:
                opening = {name: round(value, 4) for name, value in session.opening().items()}
                for algorithm in variant.algorithms:
                    if time.monotonic() > until:
                        story("the time is over; the other variants are left out")
                        return {"ceilings": ceilings, "variants": found}
                    row = _measured(session, file, address, algorithm, rounds, variant, mapping)
                    found.append({"name": variant.name, "opening": opening, **row})
                    story(_line(found[-1], ceilings))
    return {"ceilings": ceilings, "variants": found}


def _ceilings(
    library: Library, file: BenchFile, memory: HostMemory, story: Callable[[str], None]
) -> dict[str, float]:
    cores = len(os.sched_getaffinity(0))
    ceilings = {"plain parallel read": read_rate(file, memory, cores)}
    size = min(memory.size, 1 << 30)
    for algorithm in (Algorithm.BLAKE3, Algorithm.SHA256):
        name = f"digest {algorithm.name.lower()}"
        ceilings[name] = digest_rate(library, memory, size, algorithm, cores)
    for name, rate in ceilings.items():
        story(f"{name + f', {cores} threads':<44} {rate / 1e9:6.1f} GB/s")
    return ceilings


def _measured(
    session: Session, file: BenchFile, address: int, algorithm: Algorithm, rounds: int,
    variant: Variant, mapping: Mapping | None,
) -> dict[str, Any]:  # fmt: skip
    rates = []
    for _ in range(rounds):
        if variant.cold:
            file.drop()
        with mapping or nullcontext():
            metrics = session.read(file.transfer(address, algorithm))
        rates.append(_rate(metrics))
    if variant.cold:
        file.warm()
    beside = {"beside": mapping.seconds} if mapping else {}
    return {
        **beside,
        "engine": Engine(metrics.engine).name.lower(),
        "engine_reason": metrics.engine_reason.decode(errors="replace"),
        "algorithm": algorithm.name.lower(),
        "rate": statistics.median(rates),
        "best": max(rates),
        "ring_bytes": metrics.ring_bytes,
        "stages": told(metrics),
    }


class Mapping:
    """Within its `with`, a thread maps device memory, zeroes it and gives it back."""

    def __init__(self, library: Library, size: int, cuda_library: str | None) -> None:
        self._library, self._size, self._cuda_library = library, size, cuda_library
        self._thread = threading.Thread()
        self.seconds: dict[str, float] = {}
        """Of the last time: ``map``, ``zero``, ``release``."""

    def __enter__(self) -> None:
        self._thread = threading.Thread(target=self._work)
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._thread.join()

    def _work(self) -> None:
        begin = time.monotonic()
        with Region(self._library, self._size, cuda_library=self._cuda_library) as region:
            mapped = time.monotonic()
            region.zero()
            zeroed = time.monotonic()
        times = {"map": mapped - begin, "zero": zeroed - mapped}
        times["release"] = time.monotonic() - zeroed
        self.seconds = {name: round(value, 4) for name, value in times.items()}


def told(metrics: Metrics) -> dict[str, float]:
    """Stages, the clock, and which bytes went special ways."""
    found = {"wall": metrics.wall_ns / 1e9, **stages_of(metrics), **clock_of(metrics)}
    found = {name: round(value, 4) for name, value in found.items()}
    total = max(metrics.bytes, 1)
    found["direct_share"] = round(metrics.direct_bytes / total, 3)
    found["device_digest_share"] = round(metrics.device_digest_bytes / total, 3)
    return found


def _rate(metrics: Metrics) -> float:
    return float(metrics.bytes / max(metrics.wall_ns, 1) * 1e9)


def _line(row: dict[str, Any], ceilings: dict[str, float]) -> str:
    ceiling = ceilings.get("pinned copy", ceilings["plain parallel read"])
    stages = " ".join(f"{name} {value:g}" for name, value in row["stages"].items() if value)
    return (
        f"{row['name'] + ', ' + row['algorithm']:<44} {row['rate'] / 1e9:6.1f} GB/s "
        f"(best {row['best'] / 1e9:.1f}) {row['rate'] / ceiling:4.0%}"
        f"  open {row['opening']['open']:g}  {row['engine_reason'] or stages}"
    )
