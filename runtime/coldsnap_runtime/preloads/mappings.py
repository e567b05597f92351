"""libcoldsnap_mmap of this process: mapped files become memory, before a snapshot."""

from __future__ import annotations

import ctypes
import json
import os
from collections.abc import Iterable
from typing import Any

from coldsnap.artifact.errors import ColdSnapError

ABI = 1


class FileMappings:
    """The library, which this process was started with."""

    def __init__(self, calls: ctypes.CDLL) -> None:
        self._calls = calls
        calls.coldsnap_mmap_detach.argtypes = [ctypes.c_char_p]
        calls.coldsnap_mmap_status.restype = ctypes.c_size_t
        calls.coldsnap_mmap_status.argtypes = [ctypes.c_char_p, ctypes.c_size_t]

    def detach(self, patterns: Iterable[str] = ()) -> int:
        """Copy what is mapped of the files that fit; no thread may write to them meanwhile.

        Args:
            patterns: of full paths, as fnmatch(3) has them; ``deleted``: files without a name.
                None: what COLDSNAP_MMAP_COPY says.

        Returns:
            Number of mappings that were replaced.

        Raises:
            ColdSnapError: ``mmap.failed``.
        """
        text = ":".join(patterns)
        count = int(self._calls.coldsnap_mmap_detach(os.fsencode(text) if text else None))
        if count < 0:
            reason = os.strerror(ctypes.get_errno())
            raise ColdSnapError(
                "mmap.failed",
                f"mapped files could not be copied: {reason}",
                remedy="free memory, or capture with the files in place on every host",
            )
        return count

    def status(self) -> dict[str, Any]:
        """``patterns``, ``limit``, ``copies``, ``bytes``, ``left``."""
        size = self._calls.coldsnap_mmap_status(None, 0) + 4096
        buffer = ctypes.create_string_buffer(size)
        self._calls.coldsnap_mmap_status(buffer, size)
        found: dict[str, Any] = json.loads(buffer.value)
        return found


def file_mappings() -> FileMappings | None:
    """Those of this process; None where the library was not preloaded."""
    calls = ctypes.CDLL(None, use_errno=True)
    try:
        version = calls.coldsnap_mmap_abi()
    except AttributeError:
        return None
    return FileMappings(calls) if version == ABI else None
