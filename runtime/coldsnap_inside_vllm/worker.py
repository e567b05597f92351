"""Mixed into vLLM's worker (``--worker-extension-cls``): give KV and free memory back.

Method names start with ``coldsnap_`` because vLLM refuses an extension that shadows a method.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
from collections.abc import Iterator
from typing import Any

_MADV_DONTNEED = 4
_PAGE = 4096


class ColdSnapWorker:
    """Called through ``collective_rpc`` while no request runs."""

    model_runner: Any

    def coldsnap_release(self) -> dict[str, int]:
        """Drop the pages of the KV cache and of freed memory; the addresses stay mapped.

        KV reads as zero afterwards. Answers ``{"kv_bytes": dropped}``.
        """
        libc = ctypes.CDLL(None, use_errno=True)
        libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
        dropped = 0
        for address, size in sorted(set(_storages(self.model_runner.kv_caches))):
            start = -(-address // _PAGE) * _PAGE
            end = (address + size) // _PAGE * _PAGE
            if end <= start:
                continue
            if libc.madvise(start, end - start, _MADV_DONTNEED) != 0:
                raise OSError(ctypes.get_errno(), "madvise of the KV cache failed")
            dropped += end - start
        gc.collect()
        with contextlib.suppress(AttributeError):  # not glibc
            libc.malloc_trim(0)
        return {"kv_bytes": dropped}


def _storages(value: Any) -> Iterator[tuple[int, int]]:
    """(address, bytes) of the storage of every CPU tensor in nested lists, tuples and dicts."""
    if isinstance(value, dict):
        for item in value.values():
            yield from _storages(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _storages(item)
    elif hasattr(value, "untyped_storage") and value.device.type == "cpu":
        storage = value.untyped_storage()
        yield storage.data_ptr(), storage.nbytes()
