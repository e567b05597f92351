"""Mixed into vLLM's worker (``--worker-extension-cls``): what is done beside the memory itself.

Method names start with ``coldsnap_`` because vLLM refuses an extension that shadows a method.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
from collections.abc import Iterator, Sequence
from typing import Any

from coldsnap_inside_vllm import graph_pool
from coldsnap_inside_vllm.layout import Region
from coldsnap_inside_vllm.trimming import detach_mappings

_MADV_DONTNEED = 4
_PAGE = 4096


graph_pool.install()


class ColdSnapWorker:
    """Called through ``collective_rpc`` while no request runs."""

    model_runner: Any
    coldsnap_exporting: Any = None
    coldsnap_loading: Any = None

    def coldsnap_release(self) -> dict[str, int]:
        """Drop the pages of the KV cache and of freed memory; the addresses stay mapped.

        KV reads as zero afterwards. Answers ``{"kv_bytes": dropped}``.
        """
        detach_mappings()
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

    def coldsnap_device_memory(self) -> dict[str, int]:
        """Bytes: free on the device, and by vLLM's sleeping allocator for weights and KV."""
        import torch  # noqa: PLC0415

        by_tag: dict[str, int] = {}
        for tag, region in _pool():
            by_tag[tag] = by_tag.get(tag, 0) + region.bytes
        weights = by_tag.get("weights", 0)
        pooled = sum(by_tag.values())
        return {
            "free": torch.cuda.mem_get_info()[0],
            "pooled": pooled,
            "weights": weights,
            "kv": by_tag.get("kv_cache", 0),
        }

    def coldsnap_export(self, folder: str) -> dict[str, Any]:
        """Write the weights as they lie on the device into a payload pack in `folder`."""
        import torch  # noqa: PLC0415

        from coldsnap_inside_vllm import payload  # noqa: PLC0415

        torch.cuda.synchronize()
        tensors = _tensors(self.model_runner.get_model())
        try:
            moved = payload.export(folder, _weights(), tensors, torch.cuda.current_device())
        except payload.NoLibraryError as error:
            return {"bytes": 0, "reason": str(error)}
        return {"bytes": moved.bytes, "extents": moved.extents}

    def coldsnap_begin_export(self, folder: str) -> None:
        """Write the weights into `folder` in a thread; they do not change while vLLM serves."""
        import torch  # noqa: PLC0415

        from coldsnap_inside_vllm.exporting import Exporting  # noqa: PLC0415

        torch.cuda.synchronize()
        tensors = list(_tensors(self.model_runner.get_model()))
        device = torch.cuda.current_device()
        self.coldsnap_exporting = Exporting(folder, _weights(), tensors, device)
        self.coldsnap_exporting.start()

    def coldsnap_exported(self) -> dict[str, Any] | None:
        """``{bytes, extents}`` or ``{error}`` once it has ended, else None."""
        if self.coldsnap_exporting is None or self.coldsnap_exporting.is_alive():
            return None
        done, self.coldsnap_exporting = self.coldsnap_exporting, None
        return dict(done.result)

    def coldsnap_begin_load(self, pack: str, index: str) -> None:
        """Open a payload pack in a thread; bytes move once the weights' memory is mapped."""
        import torch  # noqa: PLC0415

        from coldsnap_inside_vllm.loading import Loading  # noqa: PLC0415

        if self.coldsnap_loading is not None:  # of a call that failed half-way
            self.coldsnap_loading.give_up()
        self.coldsnap_loading = Loading(pack, index, torch.cuda.current_device())
        self.coldsnap_loading.start()

    def coldsnap_weights_are_mapped(self) -> None:
        if self.coldsnap_loading is not None:
            self.coldsnap_loading.memory_is_mapped(_weights())

    def coldsnap_end_load(self, pack: str, index: str) -> dict[str, Any]:
        """Wait until the weights are there; begins by itself where nobody did.

        Answers ``{"bytes", "seconds", "spans"}``, or ``{"error", "code"}`` where the payload is
        of no use.
        """
        if self.coldsnap_loading is None:
            self.coldsnap_begin_load(pack, index)
            self.coldsnap_weights_are_mapped()
        loading, self.coldsnap_loading = self.coldsnap_loading, None
        return dict(loading.result())

    def coldsnap_trim(self, policy: str) -> dict[str, int]:
        """Before a dump, asleep: give back what need not be in it; graphs by `policy`."""
        import torch  # noqa: PLC0415

        from coldsnap_inside_vllm import communicators, graphs, trimming  # noqa: PLC0415

        dropped = graphs.drop(self.model_runner) if policy == graphs.RECREATE else 0
        closed = communicators.close(graphs_dropped=policy == graphs.RECREATE)
        kept = policy == graphs.PRESERVE
        sleeping = {region.address for _tag, region in _pool()}
        told = trimming.trim_device(torch, sleeping, graphs_hold_workspaces=kept)
        bridged = {} if closed is None else {"communicators": closed}
        return {**told, **trimming.trim_process(), "graphs_dropped": dropped, **bridged}

    def coldsnap_rebuild_communicators(self) -> int:
        """Make the communicators that `coldsnap_trim` closed again, with the other ranks."""
        from coldsnap_inside_vllm import communicators  # noqa: PLC0415

        return communicators.rebuild()

    def coldsnap_recreate_graphs(self) -> int:
        """Capture the graphs that `coldsnap_trim` dropped; the bytes that they take."""
        from coldsnap_inside_vllm import graphs  # noqa: PLC0415

        return graphs.recreate(self)

    def coldsnap_map_rest(self) -> int:
        """Map and zero what sleeps beside weights and KV: the memory of graphs. Its bytes."""
        from vllm.device_allocator.cumem import CuMemAllocator  # noqa: PLC0415

        rest = sorted({tag for tag, _region in _pool()} - {"weights", "kv_cache"})
        if not rest:
            return 0
        CuMemAllocator.get_instance().wake_up(rest)
        return _zero(rest)

    def coldsnap_clear_kv(self) -> None:
        """KV reads as zero: what the device had there before is nobody's business."""
        _zero(["kv_cache"])


def _zero(tags: Sequence[str]) -> int:
    """Clear the memory of these tags; its bytes."""
    import torch  # noqa: PLC0415
    from vllm.distributed.device_communicators.cuda_wrapper import CudaRTLibrary  # noqa: PLC0415

    runtime, cleared = CudaRTLibrary(), 0
    for tag, region in _pool():
        if tag in tags:
            runtime.cudaMemset(ctypes.c_void_p(region.address), 0, region.bytes)
            cleared += region.bytes
    # Not of the whole device: weights are on their way there, on streams of their own.
    torch.cuda.default_stream().synchronize()
    return cleared


def _pool() -> list[tuple[str, Region]]:
    """(tag, where) of everything in vLLM's sleeping allocator, by address."""
    from vllm.device_allocator.cumem import CuMemAllocator  # noqa: PLC0415

    found = CuMemAllocator.get_instance().pointer_to_data
    return [(data.tag, Region(address, data.handle[1])) for address, data in sorted(found.items())]


def _weights() -> list[Region]:
    return [region for tag, region in _pool() if tag == "weights"]


def _tensors(model: Any) -> Iterator[tuple[str, Region]]:
    """Names and places of the model's parameters and buffers, whole storages where strided."""
    for name, tensor in (*model.named_parameters(), *model.named_buffers()):
        if not tensor.is_cuda:
            continue
        if tensor.is_contiguous():
            yield name, Region(tensor.data_ptr(), tensor.numel() * tensor.element_size())
        else:
            storage = tensor.untyped_storage()
            yield name, Region(storage.data_ptr(), storage.nbytes())


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
