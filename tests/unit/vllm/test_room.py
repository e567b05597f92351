"""Sums that a restore asks of its host."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from coldsnap.artifact.errors import ColdSnapError
from coldsnap_runtime import host_room

GIB = 1 << 30


@pytest.fixture
def image(tmp_path):
    (tmp_path / "images").mkdir()
    with (tmp_path / "images" / "pages-1.img").open("wb") as file:
        file.truncate(4 * GIB)
    return tmp_path


def capture(*, cuda: bool, shm: int = 0):
    sets = (SimpleNamespace(name="shm", bytes=shm), SimpleNamespace(name="cache-0", bytes=9 * GIB))
    return SimpleNamespace(cuda={} if not cuda else {"processes": []}, file_sets=sets)


@pytest.mark.parametrize(
    ("free", "cuda", "mapped", "fits"),
    [
        (4.5, False, False, True),
        (4.5, True, False, False),
        (5, True, False, True),
        (3.9, False, False, False),
        (1, True, True, True),
        (0.1, False, True, False),
    ],
)
def test_memory(image, monkeypatch, free, cuda, mapped, fits):
    monkeypatch.setattr(host_room, "available_memory", lambda: int(free * GIB))
    if fits:
        host_room.check_memory(capture(cuda=cuda), image, is_mapped=mapped)
        return
    with pytest.raises(ColdSnapError, match="memory free") as caught:
        host_room.check_memory(capture(cuda=cuda), image, is_mapped=mapped)
    assert caught.value.code == "host.memory-short"


def test_memory_that_nobody_tells_is_believed(image, monkeypatch):
    monkeypatch.setenv(host_room.MEMINFO, "/nonexistent")
    host_room.check_memory(capture(cuda=True), image)


def test_shared_memory_must_fit_its_limit():
    host_room.check_shm(capture(cuda=True, shm=GIB), SimpleNamespace(shm=GIB))
    with pytest.raises(ColdSnapError) as caught:
        host_room.check_shm(capture(cuda=True, shm=GIB + 1), SimpleNamespace(shm=GIB))
    assert caught.value.code == "restore.shm-short"
