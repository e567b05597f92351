"""The thread count of the BLAS library that NumPy uses, where that can be set."""

from __future__ import annotations

import ctypes
import re
from pathlib import Path

# NumPy's wheels bring scipy-openblas; distributions link the system's OpenBLAS.
_PREFIXES = ("scipy_openblas_", "openblas_")
_SUFFIXES = ("64_", "")
_LIBRARY = re.compile(r"/[^\s]*openblas[^\s]*\.so[^\s]*|/[^\s]*/libblas\.so[^\s]*")


class BlasThreads:
    """Sets how many threads a product may use; remembers it, since asking costs a call."""

    def __init__(self) -> None:
        self._set, self.initial = _find()
        self._current = self.initial

    @property
    def adjustable(self) -> bool:
        return self._set is not None

    def use(self, count: int) -> None:
        """No effect when the library cannot be told."""
        if count != self._current and self._set is not None:
            self._set(count)
            self._current = count


def _find() -> tuple[ctypes._NamedFuncPointer | None, int]:
    maps = Path("/proc/self/maps").read_text("utf-8", "replace")
    for path in sorted(set(_LIBRARY.findall(maps))):
        library = ctypes.CDLL(path)
        for prefix in _PREFIXES:
            for suffix in _SUFFIXES:
                setter = getattr(library, f"{prefix}set_num_threads{suffix}", None)
                getter = getattr(library, f"{prefix}get_num_threads{suffix}", None)
                if setter is not None and getter is not None:
                    return setter, int(getter())
    return None, 1
