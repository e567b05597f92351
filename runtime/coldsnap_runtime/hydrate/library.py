"""Finding and opening libcoldsnap_hydrate.so."""

from __future__ import annotations

import _ctypes
import ctypes
import os
from pathlib import Path
from typing import Any

from coldsnap.artifact.errors import ColdSnapError
from coldsnap_runtime.hydrate.failures import failure
from coldsnap_runtime.hydrate.structures import ABI, Algorithm, Code, declare

NAME = "libcoldsnap_hydrate.so"
VARIABLE = "COLDSNAP_HYDRATE_LIBRARY"
"""Path of the library; empty: none is used."""


class Library:
    """The opened library. Close it before the process is captured: its file is mapped."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Open it.

        Raises:
            ColdSnapError: ``hydrate.library`` when it cannot be loaded or is of another version.
        """
        self.path = os.fspath(path)
        try:
            self._calls = ctypes.CDLL(self.path)
            declare(self._calls)
        except (OSError, AttributeError) as error:
            raise _unusable(self.path, str(error)) from error
        version = self._calls.coldsnap_hydrate_abi()
        if version != ABI:
            raise _unusable(self.path, f"it has ABI {version}, this coldsnap needs {ABI}")

    def call(self, name: str, *arguments: Any, subject: str = "") -> None:
        """Call a function that returns a code; without the GIL.

        Raises:
            ColdSnapError: what the code stands for; `subject` is the file it was about.
        """
        code = self.code_of(name, *arguments)
        if code != Code.OK:
            raise failure(code, self.message(), subject)

    def code_of(self, name: str, *arguments: Any) -> int:
        return int(getattr(self._calls, f"coldsnap_hydrate_{name}")(*arguments))

    def message(self) -> str:
        """Of this thread's last failed call."""
        text: bytes = self._calls.coldsnap_hydrate_error()
        return text.decode("utf-8", "replace")

    def end(self, session: ctypes.c_void_p) -> None:
        self._calls.coldsnap_hydrate_close(session)

    def digest(self, algorithm: Algorithm, data: bytes) -> bytes:
        """Digest of bytes in memory."""
        made = (ctypes.c_uint8 * 32)()
        self.call("digest", algorithm, data, len(data), made)
        return bytes(made)

    def digest_at(self, algorithm: Algorithm, address: int, size: int) -> bytes:
        """Digest of `size` bytes at an address of this process."""
        made = (ctypes.c_uint8 * 32)()
        self.call("digest", algorithm, address, size, made)
        return bytes(made)

    def unload(self) -> None:
        """Unmap the library; no session may be open. Nothing of it is used afterwards."""
        handle = self._calls._handle  # noqa: SLF001 - ctypes has no other way
        del self._calls
        _ctypes.dlclose(handle)


def load_library(path: str | os.PathLike[str] | None = None) -> Library | None:
    """The library, or None where there is none that can be used here.

    Args:
        path: this one and no other; a failure is raised then.

    Raises:
        ColdSnapError: ``hydrate.library`` for a given path, or one of COLDSNAP_HYDRATE_LIBRARY.
    """
    wanted = path if path is not None else os.environ.get(VARIABLE)
    if wanted is not None:
        return Library(wanted) if os.fspath(wanted) else None
    for candidate in _candidates():
        if candidate.is_file():
            try:
                return Library(candidate)
            except ColdSnapError:
                continue  # of another C library, processor or version: the slower way works
    return None


def _candidates() -> list[Path]:
    packages = Path(__file__).resolve().parents[2]
    """Holds coldsnap_runtime: a runtime pack, its ``inside``, site-packages or the source tree."""
    return [
        packages / "bin" / NAME,
        packages.parent / "bin" / NAME,
        packages / "coldsnap_native" / NAME,
        packages.parent / "build" / "native" / "hydrate" / NAME,
    ]


def _unusable(path: str, why: str) -> ColdSnapError:
    return ColdSnapError(
        "hydrate.library",
        f"{path} cannot be used: {why}",
        remedy="build it again (make native), or unset COLDSNAP_HYDRATE_LIBRARY",
    )
