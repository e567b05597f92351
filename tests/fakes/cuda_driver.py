"""The fake NVIDIA driver of fake_cuda.c, from a test's side."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent / "fake_cuda.c"


def build_library(folder: Path) -> Path:
    """The library, under the name by which the product finds it in a process."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler")
    library = folder / "libcuda.so.1"
    subprocess.run(
        [compiler, "-Wall", "-Werror", "-shared", "-fPIC", "-o", str(library), str(SOURCE)],
        check=True,
    )
    return library


class FakeDriver:
    """What the fake library sees and does; see tests/fakes/fake_cuda.c."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._processes: list[subprocess.Popen[bytes]] = []

    def process(self, state: int | None = 0) -> int:
        """A live process whose CUDA state is `state`; None: it has none."""
        process = subprocess.Popen(["sleep", "600"])
        self._processes.append(process)
        if state is not None:
            (self.folder / str(process.pid)).write_text(str(state))
        return process.pid

    def kill(self, pid: int) -> None:
        for process in self._processes:
            if process.pid == pid:
                process.kill()
                process.wait()

    def fault(self, call: str, pid: int, what: str) -> None:
        (self.folder / f"{call}.{pid}").write_text(what)

    def state(self, pid: int) -> int:
        return int((self.folder / str(pid)).read_text())

    def log(self) -> list[str]:
        path = self.folder / "log"
        return path.read_text().splitlines() if path.exists() else []

    def gpu(
        self, index: int, name: str = "NVIDIA H200", free: int = 100 << 30, **more: int
    ) -> None:
        uuid = f"GPU-{index:02x}000000-0000-0000-0000-000000000000"
        major, holder = more.get("major", 9), more.get("holder", 0)
        line = f"{uuid}|{name}|{major}|0|{140 << 30}|{free}|{holder}"
        (self.folder / f"gpu.{index}").write_text(line)

    def end(self) -> None:
        for process in self._processes:
            process.kill()
            process.wait()


def make_driver(folder: Path, library: Path, monkeypatch: pytest.MonkeyPatch) -> FakeDriver:
    """The product uses `library` from now on, with its state in `folder`."""
    folder.mkdir()
    (folder / "driver").write_text("580.159.04")
    monkeypatch.setenv("COLDSNAP_LIBCUDA", os.fspath(library))
    monkeypatch.setenv("COLDSNAP_LIBNVML", os.fspath(library))
    monkeypatch.setenv("FAKE_CUDA_DIR", os.fspath(folder))
    return FakeDriver(folder)
