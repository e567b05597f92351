"""The app to which the modules of ``coldsnap payload`` add their commands."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from coldsnap.cli.options import group
from coldsnap.cli.session import Session

if TYPE_CHECKING:
    from coldsnap.artifact.pack import PackReader
    from coldsnap.render.progress.meter import Meter
    from coldsnap_runtime.hydrate import Library

app = group("Make, list and verify payload packs.")

PACK = typer.Argument(metavar="PACK", help="The body, HEX.pack; HEX.index.json is beside it.")


def open_beside(path: Path, **expected: Any) -> "PackReader":
    """The pack of a body, or of an index, with the other half beside it.

    Raises:
        ColdSnapError: ``file.*``, ``pack.*``.
    """
    from coldsnap.artifact.errors import ColdSnapError
    from coldsnap.artifact.files import is_folder
    from coldsnap.artifact.pack import open_pack

    if is_folder(path):
        raise ColdSnapError(
            "file.not-regular",
            f"{path} is a folder, not a pack",
            remedy="name the body in it: FOLDER/sha256/HEX.pack",
        )
    if path.name.endswith(".index.json"):
        path = path.with_name(path.name.removesuffix(".index.json") + ".pack")
    return open_pack(path, path.with_name(path.stem + ".index.json"), **expected)


def meter(session: Session, what: str) -> "Meter":
    """Progress in bytes, as the settings want it, on stderr."""
    from coldsnap.render.progress import ProgressMode
    from coldsnap.render.progress.meter import Meter

    return Meter(ProgressMode(session.settings["progress"]), sys.stderr, what)


def needed_library() -> "Library":
    """libcoldsnap_hydrate.

    Raises:
        ColdSnapError: ``hydrate.library`` when there is none.
    """
    from coldsnap.artifact.errors import ColdSnapError
    from coldsnap_runtime.hydrate import load_library

    library = load_library()
    if library is None:
        raise ColdSnapError(
            "hydrate.library",
            "libcoldsnap_hydrate is not there",
            remedy="install coldsnap with a C++ compiler and CMake, or run: make native",
        )
    return library


def verify_whole(session: Session, pack: "PackReader") -> None:
    """Check every byte of a pack, by all cores where the library is there.

    Raises:
        ColdSnapError: ``pack.*``, ``file.*``.
    """
    from coldsnap_runtime.hydrate import Session as Hydration
    from coldsnap_runtime.hydrate import load_library, verify_pack
    from coldsnap_runtime.hydrate.structures import Place

    total = pack.index.body.bytes
    library = load_library()
    with meter(session, "verify") as show:
        if library is None:
            pack.verify(progress=lambda done: show(done, total))
            return
        with Hydration(library, Place.NOWHERE) as hydration:
            verify_pack(hydration, pack, progress=show)
