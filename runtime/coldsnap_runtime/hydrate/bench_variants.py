"""What the engine's parameters do here: one line each, beside the ceilings of the same run.

``python3 -m coldsnap_runtime.hydrate.bench --device cuda --size 15GiB --variants``
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from coldsnap_runtime.hydrate.bench_ceilings import digest_rate, read_rate
from coldsnap_runtime.hydrate.bench_file import BenchFile, HostMemory
from coldsnap_runtime.hydrate.region import Region
from coldsnap_runtime.hydrate.session import Session
from coldsnap_runtime.hydrate.structures import Algorithm, Digests, Io, Metrics, Place

if TYPE_CHECKING:
    from coldsnap_runtime.hydrate.library import Library

_KIB, _MIB = 1 << 10, 1 << 20


@dataclass(frozen=True)
class Variant:
    name: str
    shape: dict[str, Any] = field(default_factory=dict)
    """Keywords of `Session`."""
    algorithms: tuple[Algorithm, ...] = (Algorithm.UNVERIFIED, Algorithm.BLAKE3)


def device_variants() -> list[Variant]:
    """Sizes of copies, threads, the size of the ring, and who digests."""
    by_processor = {"digests": Digests.PROCESSOR}
    return [
        Variant("as it comes"),
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
    story: Callable[[str], None],
) -> dict[str, Any]:
    """Measure every variant out of the page cache; one line each goes to `story` at once.

    Returns a JSON object: ``ceilings`` {name: bytes per second}, ``variants`` [{name, algorithm,
    rate, best, open_seconds, stages}].

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
        for variant in device_variants() if is_cuda else host_variants():
            shape = {"cuda_library": cuda_library, **variant.shape}
            place = Place.CUDA if is_cuda else Place.HOST
            begin = time.monotonic()
            with Session(library, place, io=Io.AUTO, **shape) as session:
                opened = time.monotonic() - begin
                for algorithm in variant.algorithms:
                    row = _measured(session, file, address, algorithm, rounds)
                    found.append({"name": variant.name, "open_seconds": round(opened, 4), **row})
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
    session: Session, file: BenchFile, address: int, algorithm: Algorithm, rounds: int
) -> dict[str, Any]:
    rates = []
    for _ in range(rounds):
        metrics = session.read(file.transfer(address, algorithm))
        rates.append(_rate(metrics))
    return {
        "algorithm": algorithm.name.lower(),
        "rate": statistics.median(rates),
        "best": max(rates),
        "ring_bytes": metrics.ring_bytes,
        "stages": stages_of(metrics),
    }


def stages_of(metrics: Metrics) -> dict[str, float]:
    """Seconds of each stage summed over the threads, and which bytes went special ways."""
    stages = {
        name: round(getattr(metrics, f"{name}_ns") / 1e9, 4)
        for name in ("wall", "file", "digest", "wait", "turn", "device")
    }
    total = max(metrics.bytes, 1)
    stages["direct_share"] = round(metrics.direct_bytes / total, 3)
    stages["device_digest_share"] = round(metrics.device_digest_bytes / total, 3)
    return stages


def _rate(metrics: Metrics) -> float:
    return float(metrics.bytes / max(metrics.wall_ns, 1) * 1e9)


def _line(row: dict[str, Any], ceilings: dict[str, float]) -> str:
    ceiling = ceilings.get("pinned copy", ceilings["plain parallel read"])
    stages = " ".join(f"{name} {value:g}" for name, value in row["stages"].items() if value)
    return (
        f"{row['name'] + ', ' + row['algorithm']:<44} {row['rate'] / 1e9:6.1f} GB/s "
        f"(best {row['best'] / 1e9:.1f}) {row['rate'] / ceiling:4.0%}  open {row['open_seconds']:g}"
        f"  {stages}"
    )
