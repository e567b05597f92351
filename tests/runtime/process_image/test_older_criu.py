"""The images of CRIU 4.1: pycriu of that version has other fields in its page maps."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from coldsnap.store.criu_bundle import cached_bundle

HERE = Path(__file__).parent


def test_with_the_messages_of_criu_4_1() -> None:
    bundle = cached_bundle("trixie")
    if bundle is None:
        pytest.skip("no bundle of Debian trixie's CRIU 4.1 was made here")
    files = [HERE / name for name in ("test_rewrite.py", "test_refusals.py", "test_sizes.py")]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *map(str, files)],
        env={**os.environ, "COLDSNAP_TEST_PYCRIU": str(bundle / "python")},
        cwd=HERE.parents[2],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
