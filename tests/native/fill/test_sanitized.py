"""coldsnap-fill under the sanitizers, and hostile indexes by the thousand."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from conftest import Scene
from native_build import CLANG, NATIVE, build_native

CORPUS = NATIVE / "fill" / "tests" / "corpus"


def build(folder: Path, sanitize: str, target: str, *options: str) -> Path:
    wanted = (*CLANG, f"-DCOLDSNAP_SANITIZE={sanitize}", *options)
    return build_native(folder, target, options=wanted)


@pytest.fixture(scope="module", params=["address,undefined", "thread"])
def sanitized(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sanitized")
    return build(folder, str(request.param), "coldsnap-fill") / "coldsnap-fill"


def test_all_ways_are_clean(scene: Scene, sanitized: Path) -> None:
    """Their findings end the program with a status that is none of its own."""
    scene.program = sanitized
    assert scene.seal().status == 0
    assert scene.call("fill", "--threads", 8).status == 0
    assert scene.seen(1) == scene.wanted(1)
    assert scene.call("verify", "--threads", 8).status == 0
    scene.targets[1].write(scene.index.runs[-1][2], b"\0\1\2\3")
    scene.targets[1].write(scene.index.runs[-1][2] + 4096, b"\0\1\2\3")
    assert scene.call("verify").said["differences"] == 2
    assert scene.call("fill", "--deadline", "0.000001").status == 5
    path = scene.folder / "pages-2.img"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    assert scene.call("fill").status == 3
    os.truncate(path, 4096)
    assert scene.call("fill").status == 1
    scene.targets[0].end()
    assert scene.call("verify").status in (1, 6)


def test_no_index_breaks_it(tmp_path: Path) -> None:
    folder = build(
        tmp_path / "build", "address,undefined", "coldsnap_fill_fuzz", "-DCOLDSNAP_FUZZ=ON"
    )
    found = tmp_path / "found"
    found.mkdir()
    seconds = os.environ.get("COLDSNAP_FUZZ_SECONDS", "10")
    done = subprocess.run(
        [
            folder / "fill" / "coldsnap_fill_fuzz", found, CORPUS, f"-max_total_time={seconds}",
            "-rss_limit_mb=1500", f"-artifact_prefix={tmp_path}/",
        ],
        capture_output=True, text=True, check=False, timeout=280,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    assert "Done" in done.stderr
