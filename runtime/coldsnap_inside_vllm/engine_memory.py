"""What vLLM gives back while it is held still, and how it gets that again.

On CPU the weights stay in the process and only the pages of KV go. On a GPU vLLM's own sleep
level 2 discards weights and KV (their addresses stay reserved, so CUDA graphs stay valid), and
weights come back into the same addresses: out of the payload pack that was exported before
(``native``), else by vLLM's own reload of the pinned safetensors (``recovery``).
"""

from __future__ import annotations

import json
import os
import time
from typing import Any, Protocol

_DISCARD = 2
"""vLLM's sleep level that keeps nothing."""
_RECORD = "device-memory.json"
"""In the controller's folder: what the engine needs on the device beyond its process state."""


class EngineMemory(Protocol):
    async def release(self, request: dict[str, Any]) -> dict[str, Any]:
        """Give memory back; nothing runs in the engine. Undone by `take_back`."""

    async def take_back(self, request: dict[str, Any]) -> dict[str, Any]:
        """Have all memory again, with what was in it; may be called again after a failure."""


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

    async def release(self, request: dict[str, Any]) -> dict[str, Any]:
        del request
        await self._engine.reset_prefix_cache()
        released = await self._engine.collective_rpc("coldsnap_release")
        return {"kv_bytes": sum(item["kv_bytes"] for item in released)}

    async def take_back(self, request: dict[str, Any]) -> dict[str, Any]:
        del request
        return {}


class CudaMemory:
    """Sleep and wake by vLLM's allocator; what is missing is remembered until it is back."""

    def __init__(self, engine: Any) -> None:
        self._engine = engine
        self._lacks_memory = False
        self._lacks_weights = False

    async def release(self, request: dict[str, Any]) -> dict[str, Any]:
        """``level`` 2 discards the weights, 1 keeps them in host memory.

        Raises:
            RuntimeError: vLLM does not sleep, or its memory stayed on the device.
        """
        if not self._engine.model_config.enable_sleep_mode:
            raise RuntimeError("vLLM was started without --enable-sleep-mode")
        level = int(request.get("level", _DISCARD))
        before = await self._usage()
        exported = await self._export(request) if level == _DISCARD else {}
        self._lacks_memory = True
        self._lacks_weights = self._lacks_weights or level != 1
        await self._engine.sleep(level=level)
        if not await self._engine.is_sleeping():
            raise RuntimeError("vLLM was told to sleep and says that it does not")
        after = await self._usage()
        # vLLM answers 200 also when its memory stayed: only the device tells.
        freed = after["free"] - before["free"]
        if before["pooled"] and freed < before["pooled"] // 2:
            raise RuntimeError(f"sleep freed {freed} of {before['pooled']} bytes on the device")
        needs = {"bytes": before["pooled"], "weights": before["weights"], "kv": before["kv"]}
        _record(str(request.get("dir", "")), needs)
        return {"device_bytes": freed, "kv_bytes": before["kv"], **exported}

    async def take_back(self, request: dict[str, Any]) -> dict[str, Any]:
        answer: dict[str, Any] = {}
        if self._lacks_memory:
            begin = time.monotonic()
            await self._engine.wake_up()
            self._lacks_memory = False
            await self._engine.collective_rpc("coldsnap_clear_kv")
            answer["wake_seconds"] = round(time.monotonic() - begin, 4)
        if self._lacks_weights:
            begin = time.monotonic()
            answer |= await self._load(request)
            self._lacks_weights = False
            answer["weights_seconds"] = round(time.monotonic() - begin, 4)
        return answer

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

    async def _load(self, request: dict[str, Any]) -> dict[str, Any]:
        """Weights by the provider that is asked for and works: native, else recovery.

        Raises:
            RuntimeError: the native one was demanded and does not work.
        """
        provider = str(request.get("provider", "auto"))
        reason = "it was asked for"
        if provider != "recovery":
            loaded = await self._load_native(request)
            if "error" not in loaded:
                return {"provider": "native", **loaded}
            reason = str(loaded["error"])
            if provider == "native":
                raise RuntimeError(reason)
        await self._engine.collective_rpc("reload_weights")
        return {"provider": "recovery", "provider_reason": reason}

    async def _load_native(self, request: dict[str, Any]) -> dict[str, Any]:
        pack, index = str(request.get("payload", "")), str(request.get("index", ""))
        if not (_is_there(pack) and _is_there(index)):
            return {"error": "there is no payload pack"}
        results = await self._engine.collective_rpc("coldsnap_load", args=(pack, index))
        errors = [item for item in results if "error" in item]
        return errors[0] if errors else dict(results[0])


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
