"""The bare engine under CRIU: no byte of the weights in the image, the same answers after it."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from reference_server import Served, wait_ready

from coldsnap.store.criu import find_criu

pytestmark = pytest.mark.criu
PAGE = 4096
OPTIONS = ("--tcp-established", "--file-locks", "--link-remap", "--manage-cgroups=ignore")


def pages(path: Path) -> set[bytes]:
    """The start of every page that is not one number again and again (a norm's ones, zeros)."""
    data = np.fromfile(path, np.uint8)
    whole = data[: len(data) // PAGE * PAGE].reshape(-1, PAGE)[:, :128]
    words = np.ascontiguousarray(whole).view(np.uint32)
    telling = (words != words[:, :1]).any(axis=1)
    return {page.tobytes() for page in whole[telling]}


def dump(served: Served, folder: Path) -> None:
    command = [str(find_criu().command), "dump", "-t", str(served.process.pid), "-D", str(folder)]
    done = subprocess.run(
        [*command, "-o", "dump.log", "-v2", *OPTIONS], capture_output=True, check=False
    )
    assert done.returncode == 0, (folder / "dump.log").read_text()[-3000:]
    served.process.wait()


def restore(served: Served, folder: Path) -> Served:
    """In a PID namespace of its own, so that the captured PIDs are free."""
    criu = [str(find_criu().command), "restore", "-D", str(folder), "-o", "restore.log", "-v2"]
    space = ["unshare", "--pid", "--fork", "--kill-child", "--mount", "--mount-proc"]
    process = subprocess.Popen([*space, *criu, *OPTIONS], stdin=subprocess.DEVNULL)
    return Served(process, served.port, served.control, served.log)


def test_image_holds_no_weights_and_restores(fresh: Callable[..., Served], tmp_path: Path) -> None:
    served = fresh("--tune-seconds", "2")
    before = served.complete(max_tokens=48)
    asked = {"dir": str(tmp_path)}
    assert served.ask("/coldsnap/quiesce", asked, control=True)[0] == 200
    image = tmp_path / "image"
    image.mkdir()
    size = served.log.stat().st_size
    dump(served, image)
    weights = pages(tmp_path / "payload.pack")
    dumped = [page for path in image.glob("pages-*.img") for page in pages(path)]
    assert len(weights) > 1000
    assert len(dumped) > 1000
    assert not weights.intersection(dumped)
    names = {"payload": "payload.pack", "index": "payload.index.json"}
    source = {key: str(tmp_path / name) for key, name in names.items()}
    for _ in range(2):
        # CRIU compares the size of open files, and the restored engine wrote to its log.
        os.truncate(served.log, size)
        restored = restore(served, image)
        try:
            wait_quiesced(restored)
            assert restored.ask("/coldsnap/hydrate", source, control=True)[0] == 200
            wait_ready(restored)
            assert restored.complete(max_tokens=48) == before
        finally:
            restored.process.kill()
            restored.process.wait()


def wait_quiesced(served: Served) -> None:
    for _ in range(200):
        try:
            status, value = served.ask("/coldsnap/state", control=True, timeout=5)
        except OSError:
            assert served.process.poll() is None, "CRIU gave up"
            time.sleep(0.05)
            continue
        assert (status, value["state"]) == (200, "quiesced")
        return
    raise AssertionError("the restored engine does not answer")
