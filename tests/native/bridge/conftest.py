"""libcoldsnap_nccl and a libnccl without devices, plain and under sanitizers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[3]
PRELUDE = '''
import ctypes, json, os, struct, sys, threading, time
from pathlib import Path
sys.path[:0] = [{root!r}, {runtime!r}]
from coldsnap.artifact.errors import ColdSnapError
from coldsnap_runtime.preloads import nccl_bridge
from coldsnap_runtime.preloads.nccl import Exchange

class Id(ctypes.Structure):
    _fields_ = [("internal", ctypes.c_byte * 128)]

class Config(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("magic", ctypes.c_uint), ("version", ctypes.c_uint),
                ("blocking", ctypes.c_int), ("numbers", ctypes.c_int * 3),
                ("net_name", ctypes.c_char_p)]

class Nccl:
    """As vLLM's pynccl does it: its own CDLL, its own prototypes."""
    def __init__(self, path):
        self.lib = ctypes.CDLL(path)
        for name in ("ncclCommInitRank", "ncclCommInitRankConfig"):
            function = getattr(self.lib, name)
            function.argtypes = [ctypes.c_void_p, ctypes.c_int, Id, ctypes.c_int] + (
                [ctypes.c_void_p] if name.endswith("Config") else [])
        self.lib.ncclAllReduce.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t,
            ctypes.c_int, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p]
        self.lib.ncclGetLastError.restype = ctypes.c_char_p
        self.lib.ncclGetLastError.argtypes = [ctypes.c_void_p]
    def id(self):
        made = Id()
        assert self.lib.ncclGetUniqueId(ctypes.byref(made)) == 0
        return made
    def comm(self, ranks=1, id=None, rank=0, config=None):
        comm = ctypes.c_void_p()
        id = id or self.id()
        if config is None:
            code = self.lib.ncclCommInitRank(ctypes.byref(comm), ranks, id, rank)
        else:
            code = self.lib.ncclCommInitRankConfig(
                ctypes.byref(comm), ranks, id, rank, ctypes.byref(config))
        assert code in (0, 7), code
        return comm
    def sum(self, comm, values, op=0):
        given = (ctypes.c_int * len(values))(*values)
        got = (ctypes.c_int * len(values))()
        code = self.lib.ncclAllReduce(given, got, len(values), 2, op, comm, None)
        return list(got) if code == 0 else code

def failing(call, *a, **k):
    try:
        call(*a, **k)
    except ColdSnapError as error:
        return error.code, error.message
    return None

nccl = Nccl(os.environ["FAKE_NCCL"])
fake = ctypes.CDLL(os.environ["FAKE_NCCL"])
def fault(name):
    fake.fake_nccl_fault(name.encode())
bridge = nccl_bridge()
'''


@pytest.fixture(scope="session")
def built(programs: Path, build_target: Callable[[str], None]) -> Path:
    """Folder of the libnccl without devices."""
    build_target("coldsnap_fake_nccl")
    return programs / "bridge"


@pytest.fixture(scope="session")
def bridge_library(programs: Path) -> Path:
    return programs / "libcoldsnap_nccl.so"


class Process:
    """A Python process with the bridge preloaded, as an engine is."""

    def __init__(self, code: str, environment: dict[str, str]) -> None:
        prelude = PRELUDE.format(root=str(ROOT), runtime=str(ROOT / "runtime"))
        self._process = subprocess.Popen(
            [sys.executable, "-c", prelude + textwrap.dedent(code)],
            env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip

    def end(self, code: int = 0) -> Any:
        """Its last line of stdout as JSON."""
        out, errors = self._process.communicate(timeout=60)
        assert self._process.returncode == code, f"{self._process.returncode}: {errors}"
        return json.loads(out.splitlines()[-1]) if out else None


@pytest.fixture
def start(built: Path, bridge_library: Path, tmp_path: Path) -> Callable[..., Process]:
    """Start code in a process; `on` switches the bridge on."""

    def make(code: str, *, on: bool = True, preload: bool = True, **more: str) -> Process:
        library = str(bridge_library)
        environment = {
            **os.environ,
            "FAKE_NCCL": str(built / "libnccl.so.2"),
            "FAKE_NCCL_DIR": str(tmp_path),
            "COLDSNAP_NCCL_BRIDGE": "on" if on else "",
            "LD_PRELOAD": library if preload else "",
            **more,
        }
        return Process(code, environment)

    return make
