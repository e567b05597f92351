"""Leaks, data races, hostile tables, memory: under the sanitizers, over many rounds."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from native_build import CLANG, NATIVE, build_native

CORPUS = NATIVE / "hydrate" / "tests" / "corpus"


def build(folder: Path, *options: str, targets: tuple[str, ...]) -> Path:
    return build_native(folder, *targets, options=(*CLANG, *options)) / "hydrate"


@pytest.fixture(scope="module", params=["address,undefined", "thread"])
def sanitized(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sanitized")
    return build(
        folder,
        f"-DCOLDSNAP_SANITIZE={request.param}",
        targets=("coldsnap_hydrate_cycles", "coldsnap_fake_cuda", "coldsnap_fake_cufile"),
    )


@pytest.mark.parametrize("place", ["host", "device", "cufile"])
def test_a_thousand_cycles_leave_nothing(sanitized: Path, tmp_path: Path, place: str) -> None:
    fakes = {"host": (), "device": ("cuda",), "cufile": ("cuda", "cufile")}[place]
    driver = [str(sanitized / f"libcoldsnap_fake_{name}.so") for name in fakes]
    done = subprocess.run(
        [str(sanitized / "coldsnap_hydrate_cycles"), "1000", str(tmp_path), *driver],
        capture_output=True, text=True, check=False, timeout=280,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert list(tmp_path.iterdir()) == []


def test_no_table_breaks_it(tmp_path: Path) -> None:
    folder = build(
        tmp_path / "build",
        "-DCOLDSNAP_SANITIZE=address,undefined",
        "-DCOLDSNAP_FUZZ=ON",
        targets=("coldsnap_hydrate_fuzz",),
    )
    found = tmp_path / "found"
    found.mkdir()
    seconds = os.environ.get("COLDSNAP_FUZZ_SECONDS", "10")
    done = subprocess.run(
        [
            str(folder / "coldsnap_hydrate_fuzz"), str(found), str(CORPUS),
            f"-max_total_time={seconds}", "-rss_limit_mb=1500",
            f"-artifact_prefix={tmp_path}/",
        ],
        capture_output=True, text=True, check=False, timeout=280,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    assert "Done" in done.stderr


MEASURE = """
import sys
from threading import Timer
from coldsnap_runtime.hydrate import Library, Session
from coldsnap_runtime.hydrate.session import Cancel, Transfer
from coldsnap_runtime.hydrate.structures import Algorithm, Io, Place
library = Library(sys.argv[1])
size = int(sys.argv[3])
session = Session(library, Place.NOWHERE, io=Io[sys.argv[4]], threads=8)
extents = [(i << 30, 1 << 30, (1 << 40) + (i << 30)) for i in range(size >> 30)]
stop = Cancel()
timer = Timer(float(sys.argv[5]), stop.set)
timer.daemon = True
timer.start()
try:
    session.read(Transfer(sys.argv[2], size, extents, 4 << 20, Algorithm.UNVERIFIED, cancel=stop,
                          check_padding=True))
except Exception as error:
    print(error, file=sys.stderr)
# Of this program alone: ru_maxrss counts what was there before exec, too.
with open("/proc/self/status") as status:
    print(next(int(line.split()[1]) << 10 for line in status if line.startswith("VmHWM")))
"""


@pytest.mark.parametrize("io", ["BUFFERED", "DIRECT"])
def test_memory_stays_bounded_for_a_sparse_pack_of_100_gib(
    built: Path, tmp_path: Path, io: str
) -> None:
    """Its first seconds: the ring is full by then, and nothing else grows with what was read."""
    path = tmp_path / "sparse"
    with path.open("wb") as file:
        file.truncate(100 << 30)
    root = NATIVE.parent
    done = subprocess.run(
        [
            sys.executable, "-c", MEASURE, str(built / "libcoldsnap_hydrate.so"), str(path),
            str(100 << 30), io, os.environ.get("COLDSNAP_SPARSE_SECONDS", "6"),
        ],
        env={**os.environ, "PYTHONPATH": f"{root}:{root / 'runtime'}"},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    ring = 8 * 3 * (2 << 20)
    assert int(done.stdout) < ring + (200 << 20)
