"""Whether a process may be forked for an engine that will use CUDA."""

from __future__ import annotations

import ctypes
import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from coldsnap_inside_vllm import forking

NVML = """
int nvmlShutdown(void) { static int left = 2; return left-- > 0 ? 0 : 1; }
"""


@pytest.fixture
def device() -> Iterator[Path]:
    """/dev/null under a name that CUDA's device files begin with."""
    path = Path(f"/dev/nvidia-uvm-test-{os.getpid()}")
    try:
        os.mknod(path, 0o666 | stat.S_IFCHR, os.makedev(1, 3))
        path.open("rb").close()
    except OSError as error:
        path.unlink(missing_ok=True)
        pytest.skip(f"no device file can be made here: {error}")
    yield path
    path.unlink(missing_ok=True)


def test_a_context_is_seen(device: Path):
    assert not forking.uses_cuda()
    with device.open("rb"):
        assert forking.uses_cuda()
    assert not forking.uses_cuda()


def test_nvml_alone_is_closed_and_no_context(
    device: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """A fake library; like the real one it holds the device until it is shut down."""
    (tmp_path / "nvml.c").write_text(NVML)
    library = tmp_path / "libnvidia-ml.so.1"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, tmp_path / "nvml.c"], check=True)
    held = device.open("rb")
    module = ModuleType("some_pynvml")
    module.nvmlLib = ctypes.CDLL(str(library))
    module._nvmlGetFunctionPointer_cache = {"a": 1}
    monkeypatch.setitem(sys.modules, "some_pynvml", module)
    original = forking.close_nvml

    def close() -> None:
        original()
        held.close()

    monkeypatch.setattr(forking, "close_nvml", close)
    assert not forking.uses_cuda()
    assert module.nvmlLib is None
    assert module._nvmlGetFunctionPointer_cache == {}
    assert str(library) not in Path("/proc/self/maps").read_text(), "its library is unmapped"


UNNAMED = """
import ctypes, sys
from coldsnap_inside_template.imports import close_nvml, load
for _ in range(3):
    ctypes.CDLL(sys.argv[1]).nvmlInit_v2()  # as torch counts devices: nobody keeps the handle
close_nvml()
print(ctypes.CDLL(sys.argv[1]).opened())
load(("json",))
print(sys.argv[1] in open("/proc/self/maps").read())
"""
COUNTED = """
static int users;
int nvmlInit_v2(void) { users++; return 0; }
int nvmlShutdown(void) { if (users == 0) return 1; users--; return 0; }
int opened(void) { return users; }
"""


def test_nvml_that_no_module_names_is_shut_down(tmp_path: Path):
    (tmp_path / "nvml.c").write_text(COUNTED)
    library = tmp_path / "libnvidia-ml.so.1"
    soname = "-Wl,-soname,libnvidia-ml.so.1"
    subprocess.run(
        ["cc", "-shared", "-fPIC", soname, "-o", library, tmp_path / "nvml.c"], check=True
    )
    command = [sys.executable, "-c", UNNAMED, str(library)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == "0\nFalse\n", "shut down, and a template does not map it"
