"""Less to dump: memory that a process holds and does not need goes back before it is frozen."""

from __future__ import annotations

import contextlib
import ctypes
import gc
from collections.abc import Collection
from typing import Any

from coldsnap_runtime.preloads import file_mappings


def trim_process() -> dict[str, int]:
    """Collect garbage and give freed heap back; ``{host_bytes, host_bytes_freed}`` (anonymous)."""
    detach_mappings()
    before = anonymous_bytes()
    gc.collect()
    with contextlib.suppress(AttributeError):  # not glibc
        ctypes.CDLL(None).malloc_trim(0)
    after = anonymous_bytes()
    return {"host_bytes": after, "host_bytes_freed": max(0, before - after)}


def detach_mappings() -> int:
    """Copy what is mapped of files that fit COLDSNAP_MMAP_COPY (`preload: [mmap]`); how many."""
    found = file_mappings()
    return found.detach() if found is not None else 0


def trim_device(
    torch: Any, sleeping: Collection[int], *, graphs_hold_workspaces: bool
) -> dict[str, int]:
    """Give cached device and pinned memory back; ``{device_*}`` says what stays and whose it is.

    cuBLAS makes its workspaces anew when it needs them, but the addresses of those that a CUDA
    graph uses are in the graph: `graphs_hold_workspaces` keeps them.

    Args:
        torch: the module.
        sleeping: addresses of allocations that hold nothing now.
        graphs_hold_workspaces: whether there are graphs.
    """
    torch.cuda.synchronize()
    gc.collect()
    if not graphs_hold_workspaces:
        with contextlib.suppress(AttributeError):
            torch._C._cuda_clearCublasWorkspaces()  # noqa: SLF001 - torch offers no other way
    torch.cuda.empty_cache()
    with contextlib.suppress(AttributeError):
        torch._C._host_emptyCache()  # noqa: SLF001 - pinned memory; torch offers no other way
    return device_state(torch, sleeping)


def device_state(torch: Any, sleeping: Collection[int]) -> dict[str, int]:
    """Bytes on the device by owner: graph pools, other tensors; the rest is no tensor at all.

    Segments of a private pool are those of graphs, or of vLLM's allocator, whose `sleeping`
    addresses torch counts as reserved.
    """
    free, total = torch.cuda.mem_get_info()
    graphs = tensors = cached = 0
    for segment in torch.cuda.memory_snapshot():
        if int(segment["address"]) in sleeping:
            continue
        size, used = int(segment["total_size"]), int(segment["allocated_size"])
        if tuple(segment.get("segment_pool_id") or (0, 0)) != (0, 0):
            graphs += size
        else:
            tensors += used
            cached += size - used
    return {
        "device_used": total - free,
        "device_graph_pools": graphs,
        "device_tensors": tensors,
        "device_cached": cached,
    }


def anonymous_bytes() -> int:
    """Anonymous resident memory of this process: what an image of it holds, roughly."""
    with contextlib.suppress(OSError, ValueError), open("/proc/self/status", "rb") as file:
        for line in file:
            if line.startswith(b"RssAnon:"):
                return int(line.split()[1]) * 1024
    return 0
