"""What vLLM gives back while it is held still, and how it gets that again.

On CPU the weights stay in the process and only the pages of KV go. On a GPU vLLM's own sleep
level 2 discards weights and KV (their addresses stay reserved, so CUDA graphs stay valid), and
weights come back into the same addresses: out of the payload pack that was exported before
(``native``), else by vLLM's own reload of the pinned safetensors (``recovery``).
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from typing import Any, Protocol

from coldsnap_inside_vllm.graphs import RECREATE, policy
from coldsnap_inside_vllm.spans import Spans
from coldsnap_inside_vllm.trimming import trim_process

_DISCARD = 2
"""vLLM's sleep level that keeps nothing."""
_POLL_SECONDS = 0.1
_RECORD = "device-memory.json"
"""In the controller's folder: what the engine needs on the device beyond its process state."""


class EngineMemory(Protocol):
    async def release(self, request: dict[str, Any]) -> dict[str, Any]:
        """Give memory back; nothing runs in the engine. Undone by `take_back`."""

    async def take_back(self, request: dict[str, Any]) -> dict[str, Any]:
        """Have all memory again, with what was in it; may be called again after a failure."""

    async def export(self, folder: str) -> dict[str, Any]:
        """Write a payload into `folder`, which is made, while the engine serves."""


def memory_of(engine: Any) -> EngineMemory:
    """By where the engine computes. `engine` is vLLM's EngineClient."""
    from coldsnap_inside_vllm.plugin import is_template  # noqa: PLC0415
    from coldsnap_inside_vllm.template_memory import TemplateMemory  # noqa: PLC0415

    device = str(engine.vllm_config.device_config.device_type)
    memory: EngineMemory = CudaMemory(engine) if device == "cuda" else HostMemory(engine)
    return TemplateMemory(engine, memory) if is_template() else memory


class HostMemory:
    def __init__(self, engine: Any) -> None:
        self._engine = engine
        self._gave_back = False

    async def release(self, request: dict[str, Any]) -> dict[str, Any]:
        del request
        await self._engine.reset_prefix_cache()
        released = await self._engine.collective_rpc("coldsnap_release")
        self._gave_back = True
        return {"kv_bytes": sum(item["kv_bytes"] for item in released)}

    async def take_back(self, request: dict[str, Any]) -> dict[str, Any]:
        """The weights never left; who demands recovery gets them read again."""
        if not self._gave_back:
            return {}
        spans = Spans()
        provider = "image"
        if request.get("provider") == "recovery":
            with spans.span("payload") as attributes:
                await self._engine.collective_rpc("reload_weights")
                provider = attributes["provider"] = "recovery"
        self._gave_back = False
        return {"provider": provider, "spans": spans.found}

    async def export(self, folder: str) -> dict[str, Any]:
        del folder
        return {"bytes": 0, "reason": "the weights are in the process image"}


class CudaMemory:
    """Sleep and wake by vLLM's allocator; what is missing is remembered until it is back."""

    def __init__(self, engine: Any) -> None:
        self._engine = engine
        self._lacks_memory = False
        self._lacks_weights = False
        self._lacks_graphs = False
        self._lacks_rest = False
        self._lacks_communicators = False
        self._released: dict[str, Any] = {}

    async def release(self, request: dict[str, Any]) -> dict[str, Any]:
        """``level`` 2 discards the weights, 1 keeps them in host memory.

        Raises:
            RuntimeError: vLLM does not sleep, or its memory stayed on the device.
        """
        if self._lacks_memory and self._released:  # held still anew
            return {**self._released, "already": True}
        if not self._engine.model_config.enable_sleep_mode:
            raise RuntimeError("vLLM was started without --enable-sleep-mode")
        level = int(request.get("level", _DISCARD))
        spans = Spans()
        before = await self._usage()
        with spans.span("export"):
            exported = await self._export(request) if level == _DISCARD else {}
        self._lacks_memory = self._lacks_rest = True
        self._lacks_weights = self._lacks_weights or level != 1
        with spans.span("sleep"):
            await self._engine.sleep(level=level)
        if not await self._engine.is_sleeping():
            raise RuntimeError("vLLM was told to sleep and says that it does not")
        after = await self._usage()
        # vLLM answers 200 also when its memory stayed: only the device tells.
        freed = after["free"] - before["free"]
        if before["pooled"] and freed < before["pooled"] // 2:
            raise RuntimeError(f"sleep freed {freed} of {before['pooled']} bytes on the device")
        needs = {"bytes": before["pooled"], "weights": before["weights"], "kv": before["kv"]}
        needs["rest"] = before["pooled"] - before["weights"] - before["kv"]
        _record(str(request.get("dir", "")), needs)
        if level == _DISCARD:
            with spans.span("trim") as attributes:
                attributes.update(await self._trim())
        answer = {"device_bytes": freed, "kv_bytes": before["kv"], "graphs": policy()}
        self._released = {**answer, **exported}
        return {**self._released, "spans": spans.found}

    async def take_back(self, request: dict[str, Any]) -> dict[str, Any]:
        answer: dict[str, Any] = {}
        self._released = {}
        spans = Spans()
        provider = str(request.get("provider", "auto"))
        source = _source(request) if self._lacks_weights and provider != "recovery" else None
        if self._lacks_communicators:
            with spans.span("communicators") as attributes:
                made = await self._engine.collective_rpc("coldsnap_rebuild_communicators")
                attributes["made"] = sum(made)
            self._lacks_communicators = False
        if self._lacks_memory:
            await self._wake(source, spans)
        if self._lacks_weights:
            answer |= await self._weights(source, provider, spans)
            self._lacks_weights = False
        if self._lacks_graphs:
            with spans.span("graphs") as attributes:
                (taken, *_) = await self._engine.collective_rpc("coldsnap_recreate_graphs")
                attributes.update(policy=RECREATE, device_bytes=taken)
            self._lacks_graphs = False
        return answer | {"spans": spans.found} if spans.found else answer

    async def export(self, folder: str) -> dict[str, Any]:
        """In a thread of the worker: the engine's own loop goes on meanwhile.

        Raises:
            RuntimeError: it has no weights, or they could not be written.
        """
        if self._lacks_weights or self._lacks_memory:
            raise RuntimeError("the engine has no weights to write")
        await self._engine.collective_rpc("coldsnap_begin_export", args=(folder,))
        while True:
            (found,) = await self._engine.collective_rpc("coldsnap_exported")
            if found is not None:
                break
            await asyncio.sleep(_POLL_SECONDS)
        if "error" in found:
            raise RuntimeError(str(found["error"]))
        return dict(found)

    async def _wake(self, source: tuple[str, str] | None, spans: Spans) -> None:
        """Map all memory again; hydration begins as soon as that of the weights is there."""
        call = self._engine.collective_rpc
        if source is not None:
            await call("coldsnap_begin_load", args=source)
        with spans.span("wake"):
            await self._engine.wake_up(tags=["weights"])
        if source is not None:
            await call("coldsnap_weights_are_mapped")
        with spans.span("kv-remap") as attributes:
            if self._lacks_rest:
                attributes["graph_bytes"] = sum(await call("coldsnap_map_rest"))
                self._lacks_rest = False
            await self._engine.wake_up(tags=["kv_cache"])
            self._lacks_memory = False
            await call("coldsnap_clear_kv")

    async def _usage(self) -> dict[str, int]:
        found = await self._engine.collective_rpc("coldsnap_device_memory")
        return {key: sum(item[key] for item in found) for key in found[0]}

    async def _export(self, request: dict[str, Any]) -> dict[str, Any]:
        """Write the payload pack where the controller wants one."""
        folder = str(request.get("export", ""))
        if not folder or self._lacks_weights:
            return {}
        begin = time.monotonic()
        (written,) = await self._engine.collective_rpc("coldsnap_export", args=(folder,))
        return {
            "payload_bytes": written["bytes"],
            "payload_seconds": round(time.monotonic() - begin, 4),
            **({"payload_reason": written["reason"]} if "reason" in written else {}),
        }

    async def _trim(self) -> dict[str, Any]:
        """Graphs by policy, then everything that the dump need not carry."""
        again = policy() == RECREATE
        self._lacks_graphs = self._lacks_graphs or again
        found = await self._engine.collective_rpc("coldsnap_trim", args=(policy(),))
        told = {key: sum(item[key] for item in found) for key in found[0]}
        self._lacks_communicators = "communicators" in told
        own = trim_process()
        return told | {"api_host_bytes": own["host_bytes"]}

    async def _weights(
        self, source: tuple[str, str] | None, provider: str, spans: Spans
    ) -> dict[str, Any]:
        """Weights by the provider that is asked for and works: native, else recovery.

        Raises:
            RuntimeError: the native one was demanded and does not work.
        """
        why = {"error": "it was asked for", "code": "provider.asked"}
        if provider != "recovery":
            loaded = await self._native(source, spans)
            if "error" not in loaded:
                return {"provider": "native", **loaded}
            why = loaded
            if provider == "native":
                raise RuntimeError(f"{why['code']}: {why['error']}")
        with spans.span("payload") as attributes:
            await self._engine.collective_rpc("reload_weights")
            attributes.update(provider="recovery", reason=str(why["error"])[:200])
        return {
            "provider": "recovery",
            "provider_reason": str(why["error"]),
            "provider_code": str(why.get("code") or "payload.not-loaded"),
        }

    async def _native(self, source: tuple[str, str] | None, spans: Spans) -> dict[str, Any]:
        if source is None:
            return {"error": "there is no payload pack", "code": "payload.none"}
        results = await self._engine.collective_rpc("coldsnap_end_load", args=source)
        for item in results[0].pop("spans", ()):
            named = {"provider": "native"} if item["name"] == "payload" else {}
            spans.found.append({**item, "attributes": item["attributes"] | named})
        errors = [item for item in results if "error" in item]
        return errors[0] if errors else dict(results[0])


def _source(request: dict[str, Any]) -> tuple[str, str] | None:
    """Paths of a payload pack and of its index, if both are there."""
    pack, index = str(request.get("payload", "")), str(request.get("index", ""))
    return (pack, index) if _is_there(pack) and _is_there(index) else None


def _is_there(path: str) -> bool:
    return bool(path) and os.path.exists(path)


def _record(folder: str, needs: dict[str, int]) -> None:
    if not folder:
        return
    path = os.path.join(folder, _RECORD)
    with open(f"{path}.tmp", "w", encoding="ascii") as file:
        json.dump(needs, file)
        file.flush()
        os.fsync(file.fileno())
    os.replace(f"{path}.tmp", path)
