"""libcoldsnap_hydrate, built here, and packs to try it on."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from coldsnap.artifact.pack import PackReader, PackRef, open_pack, write_pack
from coldsnap_runtime.hydrate import Library, Session
from coldsnap_runtime.hydrate.structures import Io, Place

sys.path.insert(0, str(Path(__file__).parent))
from host_memory import CHUNK, LENGTHS, Memory


@pytest.fixture(scope="session")
def built(programs: Path) -> Path:
    """Folder of the library and of what its tests need."""
    folder = programs / "hydrate"
    if not (folder / "libcoldsnap_hydrate.so").is_file():
        pytest.skip("needs a C++ compiler to build native/hydrate")
    return folder


@pytest.fixture(scope="session")
def library(request: pytest.FixtureRequest) -> Library:
    """Built here, unless COLDSNAP_HYDRATE_LIBRARY names one, as on a machine without a compiler."""
    if found := os.environ.get("COLDSNAP_HYDRATE_LIBRARY"):
        return Library(found)
    return Library(request.getfixturevalue("built") / "libcoldsnap_hydrate.so")


@pytest.fixture(scope="session")
def fake_cuda(request: pytest.FixtureRequest) -> Path:
    return _fake(request, "coldsnap_fake_cuda")


@pytest.fixture(scope="session")
def fake_cufile(request: pytest.FixtureRequest) -> Path:
    return _fake(request, "coldsnap_fake_cufile")


def _fake(request: pytest.FixtureRequest, target: str) -> Path:
    """Beside COLDSNAP_HYDRATE_LIBRARY, or built here."""
    name = f"lib{target}.so"
    if found := os.environ.get("COLDSNAP_HYDRATE_LIBRARY"):
        beside = Path(found).with_name(name)
        if beside.is_file():
            return beside
    built: Path = request.getfixturevalue("built")
    request.getfixturevalue("build_target")(target)
    return built / name


@pytest.fixture(params=list(Io), ids=lambda io: io.name.lower())
def session(request: pytest.FixtureRequest, library: Library) -> Iterator[Session]:
    with Session(library, io=request.param, threads=4, slot_bytes=8192) as made:
        yield made


@pytest.fixture
def checker(library: Library) -> Iterator[Session]:
    with Session(library, Place.NOWHERE, threads=4) as made:
        yield made


@pytest.fixture
def contents() -> dict[str, bytes]:
    return {name: os.urandom(length) for name, length in LENGTHS.items()}


@pytest.fixture
def ref(tmp_path: Path, contents: dict[str, bytes]) -> PackRef:
    extents = [(name, len(data), data) for name, data in contents.items()]
    return write_pack(tmp_path, extents, chunk_bytes=CHUNK)


@pytest.fixture
def pack(ref: PackRef) -> Iterator[PackReader]:
    with open_pack(ref.body, ref.index) as opened:
        yield opened


@pytest.fixture(params=[0, 1], ids=["aligned", "unaligned"])
def memory(request: pytest.FixtureRequest) -> Memory:
    return Memory(LENGTHS, request.param)
