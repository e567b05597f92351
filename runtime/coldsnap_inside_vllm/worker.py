"""Mixed into vLLM's worker (``--worker-extension-cls``): what is done beside the memory itself.

Method names start with ``coldsnap_`` because vLLM refuses an extension that shadows a method.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
from collections.abc import Iterator
from typing import Any

from coldsnap_inside_vllm.layout import Region, cover, layout_sha256

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

    def coldsnap_export(self, pack: str, index: str) -> dict[str, int]:
        """Write the weights as they lie on the device into a payload pack."""
        import torch  # noqa: PLC0415

        from coldsnap.artifact.pack import ExtentSource, write_pack_as  # noqa: PLC0415
        from coldsnap_inside_vllm.device_copy import (  # noqa: PLC0415
            DeviceSource,
            Runtime,
            bounce_buffer,
        )

        torch.cuda.synchronize()
        allocations = _weights()
        runtime, bounce, stream = Runtime(), bounce_buffer(), torch.cuda.Stream()
        parts = cover(allocations, _tensors(self.model_runner.get_model()))
        extents = (
            ExtentSource(
                part.id,
                part.bytes,
                DeviceSource(
                    runtime,
                    allocations[part.allocation].address + part.offset,
                    part.bytes,
                    bounce,
                    stream,
                ),
                {"allocation": str(part.allocation), "offset": str(part.offset)},
            )
            for part in parts
        )
        written = write_pack_as(
            pack, index, extents, attributes={"layout": layout_sha256(allocations)}
        )
        return {"bytes": written.bytes, "extents": len(parts)}

    def coldsnap_load(self, pack: str, index: str) -> dict[str, Any]:
        """Fill the weights' allocations out of a payload pack; KV reads as zero afterwards.

        Raises:
            RuntimeError: the pack is of another layout.
        """
        import torch  # noqa: PLC0415

        from coldsnap.artifact.pack import open_pack  # noqa: PLC0415
        from coldsnap_inside_vllm.device_copy import Copy, Runtime, fill  # noqa: PLC0415

        allocations = _weights()
        with open_pack(pack, index) as reader:
            extents = reader.index.extents
            if reader.index.attributes.get("layout") != layout_sha256(allocations):
                raise RuntimeError("the payload pack is of another memory layout")
        copies = [_placed(extent, allocations, Copy) for extent in extents]
        if sum(copy.bytes for copy in copies) != sum(region.bytes for region in allocations):
            raise RuntimeError("the payload pack does not cover the weights' memory")
        seconds = fill(pack, copies, torch.cuda.current_device())
        runtime = Runtime()
        for tag, region in _pool():
            if tag == "kv_cache":
                runtime.clear(region.address, region.bytes)
        torch.cuda.synchronize()
        return {"bytes": sum(copy.bytes for copy in copies), "seconds": round(seconds, 4)}


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


def _placed(extent: Any, allocations: list[Region], copy: Any) -> Any:
    """Where an extent belongs; it must lie inside its allocation."""
    number = int(extent.attributes["allocation"])
    offset = int(extent.attributes["offset"])
    if not 0 <= number < len(allocations) or offset < 0:
        raise RuntimeError(f"extent {extent.id} names no memory of the weights")
    if offset + extent.length > allocations[number].bytes:
        raise RuntimeError(f"extent {extent.id} reaches beyond its allocation")
    return copy(extent.offset, allocations[number].address + offset, extent.length)


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
