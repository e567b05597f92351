"""The native programs and libraries, built by CMake for a session of tests."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

NATIVE = Path(__file__).parents[2] / "native"
CLANG = ("-DCMAKE_C_COMPILER=clang", "-DCMAKE_CXX_COMPILER=clang++", "-DCMAKE_BUILD_TYPE=Debug")
"""Options for sanitizers and fuzzers."""
STRICT = ("-DCOLDSNAP_WERROR=ON",)


def build_native(folder: Path, *targets: str, options: tuple[str, ...] = STRICT) -> Path:
    """`folder` with `targets` in it; without any, with all that is built unnamed.

    The test is skipped where a tool is missing.
    """
    compiler = "clang++" if options[: len(CLANG)] == CLANG else "c++"
    for tool in ("cmake", compiler):
        if shutil.which(tool) is None:
            pytest.skip(f"needs {tool} to build native/")
    wanted = ["--target", *targets] if targets else []
    for command in (
        ["cmake", "-S", str(NATIVE), "-B", str(folder), *options],
        ["cmake", "--build", str(folder), "--parallel", "2", *wanted],
    ):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
    return folder
