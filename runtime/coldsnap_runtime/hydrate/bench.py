"""How fast bytes come from a file into memory here, beside the ceilings of the same run.

``python3 -m coldsnap_runtime.hydrate.bench --device cuda --size 15GiB`` needs nothing but the
standard library; ``coldsnap payload bench`` shows the same numbers as a table.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from coldsnap.artifact.errors import ColdSnapError
from coldsnap_runtime.hydrate.bench_ceilings import digest_rate, direct_write_rate, read_rate
from coldsnap_runtime.hydrate.bench_file import BenchFile, HostMemory, make_file
from coldsnap_runtime.hydrate.bench_variants import run_variants, told
from coldsnap_runtime.hydrate.library import Library, load_library
from coldsnap_runtime.hydrate.region import Region
from coldsnap_runtime.hydrate.session import Session
from coldsnap_runtime.hydrate.structures import Algorithm, Io, Place

_UNITS = {"": 1, "B": 1, "KIB": 1 << 10, "MIB": 1 << 20, "GIB": 1 << 30, "TIB": 1 << 40,
          "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}  # fmt: skip
_SIZE = re.compile(r"^(\d{1,15}(?:\.\d{1,15})?)\s*([A-Za-z]*)$")


@dataclass(frozen=True)
class BenchOptions:
    size: int
    folder: Path | None = None
    """Where the file is made; default: the folder for temporary files."""
    device: str = "host"
    """``host`` or ``cuda``."""
    rounds: int = 5
    threads: int = 0
    slots: int = 0
    slot_bytes: int = 0
    keep: bool = False
    """Leave the file, and take one that is there."""
    cold: bool = True
    """Also with the file out of the page cache."""
    write: bool = True
    cuda_library: str | None = None
    variants: bool = False
    """Instead of the series: what the engine's parameters do."""
    beside_bytes: int = 64 << 30
    """Of the variant beside which device memory is mapped."""
    budget: float = 0
    """Seconds after which no variant is begun any more; 0: no end."""
    only: str = ""
    """Variants whose name has this in it."""


@dataclass
class Series:
    """Rates of one kind of transfer, bytes per second, one per round."""

    name: str
    ceiling: str = ""
    """The series that it is measured against."""
    rates: list[float] = field(default_factory=list)
    stages: dict[str, float] = field(default_factory=dict)
    """Seconds, summed over threads, of the last round."""

    @property
    def median(self) -> float:
        return statistics.median(self.rates)


Measure = Callable[[], "float | tuple[float, dict[str, float]]"]
"""One transfer: its rate, and perhaps its stages."""


def run_bench(
    library: Library, options: BenchOptions, story: Callable[[str], None]
) -> dict[str, Any]:
    """Measure; every round runs all series once, so that a busy moment hits them alike.

    Returns a JSON object: ``machine``, ``size``, ``series`` [{name, rate, best, ceiling, ratio,
    stages}].

    Raises:
        ColdSnapError: ``hydrate.*``, ``file.*``.
    """
    with ExitStack() as stack:
        folder = options.folder
        if folder is None:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="coldsnap-")))
        story(f"making a file of {options.size} bytes in {folder}")
        file = make_file(library, folder, options.size)
        if not options.keep:
            stack.callback(file.remove)
        if options.variants:
            return run_variants(
                library, file, is_cuda=options.device == "cuda", rounds=options.rounds,
                cuda_library=options.cuda_library, beside_bytes=options.beside_bytes,
                budget=options.budget, only=options.only, story=story,
            )  # fmt: skip
        bench = _Bench(library, options, file, stack)
        story(f"measuring, {options.rounds} rounds")
        for number in range(options.rounds):
            bench.warm_round()
            if options.cold and number < max(1, options.rounds // 2):
                bench.cold_round()
            if options.write and number < max(1, options.rounds // 2):
                bench.write_round(folder)
        return bench.result()


class _Bench:
    def __init__(
        self, library: Library, options: BenchOptions, file: BenchFile, stack: ExitStack
    ) -> None:
        self._library, self._options, self._file = library, options, file
        self._is_cuda = options.device == "cuda"
        self._series: dict[str, Series] = {}
        self._cores = len(os.sched_getaffinity(0))
        shape: dict[str, Any] = {
            "threads": options.threads, "slots": options.slots, "slot_bytes": options.slot_bytes,
            "cuda_library": options.cuda_library,
        }  # fmt: skip
        place = Place.CUDA if self._is_cuda else Place.HOST
        self._session = stack.enter_context(Session(library, place, **shape))
        self._buffered = stack.enter_context(Session(library, place, io=Io.BUFFERED, **shape))
        self._direct = stack.enter_context(Session(library, Place.NOWHERE, io=Io.DIRECT, **shape))
        self._memory = HostMemory(min(file.size, 4 << 30) if self._is_cuda else file.size)
        if self._is_cuda:
            region = Region(library, file.size, cuda_library=options.cuda_library)
            stack.callback(region.free)
            self._address = region.address
        else:
            self._address = self._memory.address

    def warm_round(self) -> None:
        """All of the file in the page cache."""
        self._file.warm()
        ceiling = "plain parallel read"
        self._add(ceiling, "", lambda: read_rate(self._file, self._memory, self._cores))
        if self._is_cuda:
            ceiling = "pinned copy"
            self._add(ceiling, "", self._pinned)
        self._add("warm, unverified", ceiling, lambda: self._hydrate(Algorithm.UNVERIFIED))
        for algorithm in (Algorithm.SHA256, Algorithm.BLAKE3):
            name = algorithm.name.lower()
            against = ceiling if self._is_cuda else f"digest {name}"
            self._add(f"digest {name}", "", lambda a=algorithm: self._digest(a))  # type: ignore[misc]
            self._add(f"warm, {name}", against, lambda a=algorithm: self._hydrate(a))  # type: ignore[misc]

    def cold_round(self) -> None:
        """None of the file in the page cache, before each transfer."""
        ceiling = "O_DIRECT read"
        self._file.drop()
        self._add(ceiling, "", self._read_direct)
        for algorithm in (Algorithm.UNVERIFIED, Algorithm.BLAKE3):
            self._file.drop()
            name = f"cold, {algorithm.name.lower()}"
            self._add(name, ceiling, lambda a=algorithm: self._hydrate(a))  # type: ignore[misc]

    def write_round(self, folder: Path) -> None:
        """Memory to a durable file."""
        size = min(self._file.size, 4 << 30)
        ceiling = "O_DIRECT write"
        self._add(ceiling, "", lambda: direct_write_rate(folder, self._memory, size))
        # With its identity, which is the work of one core; without; and left to the page cache.
        for name, session, identity, is_durable in (
            ("write, named", self._session, True, True),
            ("write, draft", self._session, False, True),
            ("write, draft in page cache", self._buffered, False, False),
        ):
            self._add(
                name,
                ceiling,
                lambda s=session, i=identity, d=is_durable: self._write(s, folder, size, i, d),  # type: ignore[misc]
            )

    def result(self) -> dict[str, Any]:
        return {
            "machine": {
                "cores": self._cores,
                "load": [round(value, 2) for value in os.getloadavg()],
                "device": self._options.device,
            },
            "size": self._file.size,
            "rounds": self._options.rounds,
            "series": [self._described(series) for series in self._series.values()],
        }

    def _described(self, series: Series) -> dict[str, Any]:
        ceiling = self._series.get(series.ceiling)
        return {
            "name": series.name,
            "rate": series.median,
            "best": max(series.rates),
            "ceiling": series.ceiling or None,
            "ratio": series.median / ceiling.median if ceiling else None,
            "stages": series.stages,
        }

    def _add(self, name: str, ceiling: str, measure: Measure) -> None:
        series = self._series.setdefault(name, Series(name, ceiling))
        found = measure()
        if isinstance(found, tuple):
            found, series.stages = found
        series.rates.append(found)

    def _hydrate(self, algorithm: Algorithm) -> tuple[float, dict[str, float]]:
        metrics = self._session.read(self._file.transfer(self._address, algorithm))
        return metrics.bytes / metrics.wall_ns * 1e9, told(metrics)

    def _read_direct(self) -> float:
        metrics = self._direct.read(self._file.transfer(0, Algorithm.UNVERIFIED))
        return float(metrics.bytes / metrics.wall_ns * 1e9)

    def _pinned(self) -> float:
        metrics = self._session.copy_rate(self._address, self._file.size)
        return float(metrics.bytes / metrics.wall_ns * 1e9)

    def _digest(self, algorithm: Algorithm) -> float:
        size = min(self._memory.size, 1 << 30)
        return digest_rate(self._library, self._memory, size, algorithm, self._cores)

    def _write(
        self, session: Session, folder: Path, size: int, identity: bool, is_durable: bool
    ) -> tuple[float, dict[str, float]]:
        path = folder / "coldsnap-bench.written"
        transfer = self._file.write_transfer(
            path, self._address, size, identity=identity, is_durable=is_durable
        )
        begin = time.monotonic()
        try:
            metrics, _ = session.write(transfer)
            # The wall time of the caller: making it durable is part of it.
            rate = size / (time.monotonic() - begin)
        finally:
            path.unlink(missing_ok=True)
        return rate, told(metrics)


def parse_size(text: str) -> int:
    """Bytes of ``15GiB``, ``512 MB``, ``4096``.

    Raises:
        ValueError: it is none.
    """
    match = _SIZE.match(text.strip())
    unit = match[2].upper() if match else ""
    if match is None or unit not in _UNITS:
        raise ValueError(f"{text!r} is not a size: give 15GiB, 512MB or bytes")
    return int(float(match[1]) * _UNITS[unit])


def main() -> int:
    """The command line of this module; prints one JSON object."""
    parser = argparse.ArgumentParser(prog="coldsnap_runtime.hydrate.bench")
    parser.add_argument("--device", choices=("host", "cuda"), default="host")
    parser.add_argument("--size", type=parse_size, default=1 << 30)
    parser.add_argument("--dir", type=Path)
    parser.add_argument("--library")
    parser.add_argument("--cuda-library")
    for name in ("--threads", "--slots", "--slot-bytes"):
        parser.add_argument(name, type=int, default=0)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--beside-bytes", type=parse_size, default=64 << 30)
    parser.add_argument("--budget", type=float, default=0)
    parser.add_argument("--only", default="")
    for name in ("--keep", "--no-cold", "--no-write", "--variants"):
        parser.add_argument(name, action="store_true")
    given = parser.parse_args()
    options = BenchOptions(
        given.size, given.dir, given.device, max(1, given.rounds), given.threads, given.slots,
        given.slot_bytes, given.keep, not given.no_cold, not given.no_write, given.cuda_library,
        given.variants, given.beside_bytes, given.budget, given.only,
    )  # fmt: skip
    try:
        library = load_library(given.library)
        if library is None:
            print("libcoldsnap_hydrate.so is not built", file=sys.stderr)
            return 1
        found = run_bench(library, options, lambda text: print(text, file=sys.stderr))
    except ColdSnapError as error:
        print(error, file=sys.stderr)
        return 1
    print(json.dumps(found, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
