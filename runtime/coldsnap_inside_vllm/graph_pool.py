"""The memory of CUDA graphs in vLLM's sleeping allocator: out of the image, back at its addresses.

A graph writes what it reads: between replays nothing of its pool counts but where it is. So the
pool is made of the allocator that discards weights and KV while vLLM sleeps, and is mapped again
and zeroed with them; the acceptance's exact answers prove it. Where a trial at the start does not
work, the pool stays torch's own, the reason is in the engine's log, and the image is larger.
"""

from __future__ import annotations

import functools
import logging
import os
import sys
from typing import Any

from coldsnap_inside_vllm.graphs import PRESERVE, policy
from coldsnap_inside_vllm.plugin import is_template

VARIABLE = "COLDSNAP_GRAPH_POOL"
"""``0`` leaves the pool to torch."""
_WORKER = "vllm.v1.worker.gpu_worker"
_KEY = "coldsnap-graphs"
_COUNT = 4096

logger = logging.getLogger("vllm.coldsnap")


def install() -> None:
    """Let vLLM's GPU worker, if this process has it, prepare the pool after the weights are loaded.

    Called when vLLM imports the worker extension, before it makes the worker.
    """
    module = sys.modules.get(_WORKER)
    worker = getattr(module, "Worker", None)
    if worker is None or os.environ.get(VARIABLE) == "0" or policy() != PRESERVE or is_template():
        return
    original = worker.determine_available_memory
    if hasattr(original, "coldsnap"):
        return

    @functools.wraps(original)
    def determined(self: Any, *args: Any, **kwargs: Any) -> Any:
        found = original(self, *args, **kwargs)
        reason = prepare(self)
        if reason:
            logger.warning("CUDA graphs keep their memory in a snapshot: %s", reason)
        return found

    determined.coldsnap = True  # type: ignore[attr-defined]
    worker.determine_available_memory = determined


def prepare(worker: Any) -> str:
    """Make the pool and let all graphs of the worker use it; why not, where it cannot be."""
    config = worker.vllm_config
    if not config.model_config.enable_sleep_mode:
        return "vLLM was started without sleep mode"
    if config.parallel_config.world_size > 1:
        return "graphs of several GPUs register their memory with each other"
    try:
        pool = _pool()
        _try(pool)
    except Exception as error:  # noqa: BLE001 - whatever it is, the engine goes on without
        return f"{type(error).__name__}: {error}"
    _use(pool.id)
    logger.info("the memory of CUDA graphs sleeps with weights and KV")
    return ""


def _pool() -> Any:
    import torch  # noqa: PLC0415
    from vllm.device_allocator.cumem import (  # noqa: PLC0415
        CuMemAllocator,
        get_pluggable_allocator,
    )

    allocator = CuMemAllocator.get_instance()
    pluggable = get_pluggable_allocator(
        allocator.python_malloc_callback, allocator.python_free_callback
    )
    pool = torch.cuda.MemPool(pluggable._allocator)  # noqa: SLF001 - as vLLM does
    allocator.allocator_and_pools[_KEY] = (pool, pluggable)  # both must live
    return pool


def _try(pool: Any) -> None:
    """Capture, replay, take the memory away and give it back, replay.

    Raises:
        RuntimeError: the graph's memory is elsewhere, or its answer is wrong.
    """
    import torch  # noqa: PLC0415
    from vllm.device_allocator.cumem import (  # noqa: PLC0415
        CuMemAllocator,
        create_and_map,
        unmap_and_release,
    )

    found = CuMemAllocator.get_instance().pointer_to_data
    before = set(found)
    source = torch.arange(_COUNT, device="cuda", dtype=torch.float32)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, pool=pool.id):
        result = (source * 2.0 + 1.0).sqrt()
    mine = [found[address] for address in set(found) - before]
    if not mine:
        raise RuntimeError("the memory of a graph did not come from vLLM's allocator")
    expected = (source * 2.0 + 1.0).sqrt()
    for again in (False, True):
        if again:
            torch.cuda.synchronize()
            for data in mine:
                unmap_and_release(data.handle)
                create_and_map(data.handle)
        graph.replay()
        torch.cuda.synchronize()
        if not torch.equal(result, expected):
            raise RuntimeError("a graph answers differently after its memory was taken away")


def _use(pool_id: Any) -> None:
    """For graphs that are captured from now on, also by wrappers that exist already."""
    from vllm.platforms import current_platform  # noqa: PLC0415

    from coldsnap_inside_vllm.graphs import wrapper_classes  # noqa: PLC0415

    type(current_platform)._global_graph_pool = pool_id  # noqa: SLF001 - vLLM's own cache of it
    for wrappers in wrapper_classes():
        for wrapper in list(wrappers._all_instances):  # noqa: SLF001 - vLLM's own registry
            wrapper.graph_pool = pool_id
