"""libcoldsnap_guard.so: restored memory behaves as memory that never was captured.

A program maps its own memory from an image file, as a restore by ``mmap`` leaves it, and does all
that programs do; an untouched twin of it must say the same.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

IN_NAMESPACE = """
set -e
mount -t tmpfs none /run
mkdir -p /run/coldsnap/image
mount --bind "$1" /run/coldsnap/image
shift
exec "$@"
"""


@pytest.fixture(scope="module")
def torture(programs: Path, build_target: Callable[[str], None]) -> Path:
    build_target("coldsnap_torture")
    build_target("coldsnap_guard_text")
    build_target("coldsnap_map_image")
    return programs / "guard" / "coldsnap_torture"


@pytest.fixture(params=["libcoldsnap_guard.so", "guard/libcoldsnap_guard_text.so"])
def guard(request: pytest.FixtureRequest, programs: Path, torture: Path) -> Path:
    """As it ships, and as it works on kernels that know no PROCMAP_QUERY."""
    del torture
    return programs / str(request.param)


Mapped = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def mapped(tmp_path: Path) -> Mapped:
    """Runs a command where /run/coldsnap/image is a folder of ours; a guard may be preloaded."""
    if os.geteuid() != 0:
        pytest.skip("needs root for a mount namespace")
    image = tmp_path / "image"

    def run(guard: Path | None, *command: str | Path) -> subprocess.CompletedProcess[str]:
        image.mkdir(exist_ok=True)
        for old in image.iterdir():
            old.unlink()
        preload = [f"LD_PRELOAD={guard}"] if guard else []
        return subprocess.run(
            ["unshare", "--mount", "sh", "-c", IN_NAMESPACE, "sh", image, "env", *preload,
             *command],
            capture_output=True, text=True, check=False, timeout=120, cwd="/",
        )  # fmt: skip

    return run


IMAGE = "/run/coldsnap/image/pages-1.img"


def lines_of(done: subprocess.CompletedProcess[str]) -> list[str]:
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.splitlines()


def test_restored_memory_is_like_its_twin(torture: Path, guard: Path, mapped: Mapped) -> None:
    twin = lines_of(mapped(None, torture, "plain"))
    assert len(twin) > 50
    assert twin[-1] == "done"
    assert lines_of(mapped(guard, torture, "mapped", IMAGE)) == twin


def test_the_guard_changes_nothing_without_a_restore(
    torture: Path, guard: Path, mapped: Mapped
) -> None:
    assert lines_of(mapped(guard, torture, "plain")) == lines_of(mapped(None, torture, "plain"))


def test_without_the_guard_the_twin_differs(torture: Path, mapped: Mapped) -> None:
    """What the other tests prove is not there by itself."""
    twin = lines_of(mapped(None, torture, "plain"))
    bare = mapped(None, torture, "mapped", IMAGE).stdout.splitlines()
    assert "dontneed: 0, zero 1" in twin
    assert "dontneed: 0, zero 0" in bare
    assert "grown in place: 1, kept 1, tail zero 0" in bare


def test_it_loads_where_only_old_symbols_are(programs: Path) -> None:
    table = subprocess.run(
        ["objdump", "-T", programs / "libcoldsnap_guard.so"],
        capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    versions = {
        tuple(map(int, found.split("."))) for found in re.findall(r"GLIBC_([0-9.]+)", table)
    }
    assert versions
    assert max(versions) <= (2, 17)
    exported = set(re.findall(r" g +DF .*Base +(\w+)", table))
    assert exported == {"madvise", "mremap", "realloc"}


PYTHON = Path(__file__).with_name("torture.py")


def test_python_is_like_its_twin(programs: Path, guard: Path, mapped: Mapped) -> None:
    python = os.path.realpath("/proc/self/exe")
    mapper = programs / "guard" / "libcoldsnap_map_image.so"
    twin = lines_of(mapped(None, python, PYTHON, "plain"))
    assert twin[-1] == "done"
    done = mapped(guard, python, PYTHON, "mapped", IMAGE, mapper)
    assert (done.returncode, done.stderr) == (0, "mapped\n")
    assert done.stdout.splitlines() == twin
