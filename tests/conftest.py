"""What a test needs of the machine: a marker names it; in CI its absence is a failure."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent / "support"))

# A shell starts what it puts in the background with SIGINT ignored, and children inherit that;
# the programs under test shall see it as a terminal's Ctrl-C.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # nohup ignores it

STRICT = bool(os.environ.get("CI"))


def _root() -> str:
    return "" if os.geteuid() == 0 else "needs root"


@cache
def _criu() -> str:
    if reason := _root():
        return reason
    from coldsnap.store.runtime import find_criu  # noqa: PLC0415

    try:
        find_criu()
    except Exception as error:  # noqa: BLE001 - whatever it is, it is the reason
        return f"no CRIU that works here: {error}"
    return ""


@cache
def _docker() -> str:
    if shutil.which("docker") is None:
        return "docker is not installed"
    done = subprocess.run(["docker", "info"], capture_output=True, check=False)
    return "" if done.returncode == 0 else "no docker daemon answers"


@cache
def _ssh() -> str:
    if reason := _root():
        return reason
    path = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"
    missing = [name for name in ("sshd", "ip") if shutil.which(name, path=path) is None]
    return f"missing: {', '.join(missing)}" if missing else ""


@cache
def _browser() -> str:
    return "" if shutil.which("chromium") else "chromium is not installed"


@cache
def _vllm() -> str:
    python = os.environ.get("COLDSNAP_VLLM_PYTHON", "")
    if python and Path(python).exists():
        return ""
    return "no environment with the CPU build of vLLM: make test-vllm sets one up"


NEEDS = {"criu": _criu, "docker": _docker, "ssh": _ssh, "browser": _browser, "vllm": _vllm}


def pytest_runtest_setup(item: pytest.Item) -> None:
    for marker in item.iter_markers():
        check = NEEDS.get(marker.name)
        reason = check() if check else ""
        if reason and STRICT:
            pytest.fail(f"{marker.name}: {reason}", pytrace=False)
        if reason:
            pytest.skip(f"{marker.name}: {reason}")
