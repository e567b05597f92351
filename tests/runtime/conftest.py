"""Fixtures for the runtime's tests from the outside."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from native_build import build_native

from coldsnap.store.archive import unpack

sys.path.insert(0, str(Path(__file__).parent))
from runtime_target import Host, Runtime, criu_command


@pytest.fixture
def runtime(tmp_path: Path) -> Runtime:
    return Runtime(tmp_path / "state")


@pytest.fixture(scope="session")
def archive(tmp_path_factory) -> Path:
    """The runtime pack as a user's host builds it."""
    if os.geteuid() != 0:
        pytest.skip("needs root")
    native = build_native(tmp_path_factory.mktemp("native"))
    criu = criu_command()
    code = "from coldsnap.store.runtime import build; import sys; print(build(sys.argv[1]).archive)"
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path_factory.mktemp("packs"))],
        env={**os.environ, "COLDSNAP_NATIVE_DIR": str(native), "COLDSNAP_CRIU": str(criu)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return Path(done.stdout.strip())


@pytest.fixture
def host(archive: Path, tmp_path: Path):
    state = tmp_path / "state"
    pack = state / "runtime" / "sha256" / archive.stem
    pack.mkdir(parents=True)
    unpack(archive, pack)
    made = Host(state, pack=pack)
    yield made
    made.end()
