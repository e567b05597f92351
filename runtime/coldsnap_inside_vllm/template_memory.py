"""The memory of an engine that was started from a template: nothing of it is in an image.

A capture takes what this start found out (the start-up plan) and the payload pack that was
written when the weights were loaded; the engine keeps its memory all the while.
"""

from __future__ import annotations

import json
import os
from typing import Any

from coldsnap_inside_vllm.engine_memory import EngineMemory
from coldsnap_inside_vllm.later import LATER, VARIABLE
from coldsnap_inside_vllm.phases import folder, told

PLAN = "startup-plan.json"
_NEEDS = "device-memory.json"


class TemplateMemory:
    """Implements `EngineMemory`; real sleep is `sleeper`'s."""

    def __init__(self, engine: Any, sleeper: EngineMemory) -> None:
        self._engine = engine
        self._sleeper = sleeper
        self._sleeps = False
        self._has_told = False

    async def release(self, request: dict[str, Any]) -> dict[str, Any]:
        """For a capture (``dir``) leave the plan there; else sleep."""
        if not request.get("dir"):
            self._sleeps = True
            return await self._sleeper.release(request)
        plans = [
            plan for plan in await self._engine.collective_rpc("coldsnap_startup_plan") if plan
        ]
        _write(os.path.join(folder(), PLAN), {"workers": plans})
        needs = {"bytes": sum(plan["requested_bytes"] for plan in plans)}
        _write(os.path.join(str(request["dir"]), _NEEDS), needs)
        return {"planned_workers": len(plans)}

    async def export(self, folder: str) -> dict[str, Any]:
        return await self._sleeper.export(folder)

    async def take_back(self, request: dict[str, Any]) -> dict[str, Any]:
        if self._sleeps:
            answer = await self._sleeper.take_back(request)
            self._sleeps = False
            return answer
        if self._has_told:
            return {}
        self._has_told = True
        spans = told()
        return {"spans": spans, **_provider(spans)}

    async def is_unfinished(self) -> bool:
        """Whether a worker left its CUDA graphs for later."""
        if os.environ.get(VARIABLE) != LATER:
            return False
        return any(await self._engine.collective_rpc("coldsnap_lacks_graphs"))

    async def finish(self) -> None:
        await self._engine.collective_rpc("coldsnap_capture_graphs")


def _provider(spans: list[dict[str, Any]]) -> dict[str, Any]:
    """Where the weights came from, as `Engine.hydrate` tells it."""
    for span in spans:
        if span["name"] == "payload":
            said = span["attributes"]
            if said.get("provider") == "native":
                return {"provider": "native"}
            code = {"provider_code": said["code"]} if "code" in said else {}
            return {"provider": "recovery", "provider_reason": said.get("reason", ""), **code}
    return {}


def _write(path: str, value: dict[str, Any]) -> None:
    with open(f"{path}.tmp", "w", encoding="ascii") as file:
        json.dump(value, file)
        file.flush()
        os.fsync(file.fileno())
    os.replace(f"{path}.tmp", path)
