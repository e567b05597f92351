"""What an engine from a template leaves for a capture, and tells after its start."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from coldsnap_inside_vllm import phases
from coldsnap_inside_vllm.template_memory import TemplateMemory

PLAN = {"requested_bytes": 80 << 30, "kv_bytes": 60 << 30}


class Engine:
    def __init__(self, *plans: dict[str, Any] | None) -> None:
        self.plans = plans

    async def collective_rpc(self, name: str) -> list[Any]:
        assert name == "coldsnap_startup_plan"
        return list(self.plans)


class Sleeper:
    def __init__(self) -> None:
        self.calls: list[str] = []

    async def release(self, request: dict[str, Any]) -> dict[str, Any]:
        self.calls.append(f"release {request['level']}")
        return {"device_bytes": 1}

    async def take_back(self, request: dict[str, Any]) -> dict[str, Any]:
        del request
        self.calls.append("take back")
        return {"wake_seconds": 0.1}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(phases.FOLDER_VARIABLE, str(tmp_path))
    return tmp_path


def test_a_capture_gets_the_plan_and_the_engine_keeps_its_memory(folder: Path, tmp_path: Path):
    sleeper = Sleeper()
    memory = TemplateMemory(Engine(PLAN, None), sleeper)
    control = tmp_path / "control"
    control.mkdir()
    answer = asyncio.run(memory.release({"dir": str(control), "drain_seconds": 60}))
    assert answer == {"planned_workers": 1}
    assert json.loads((folder / "startup-plan.json").read_text()) == {"workers": [PLAN]}
    needs = json.loads((control / "device-memory.json").read_text())
    assert needs == {"bytes": 80 << 30}
    assert sleeper.calls == []


def test_sleep_is_real(folder: Path):
    sleeper = Sleeper()
    memory = TemplateMemory(Engine(), sleeper)
    asyncio.run(memory.release({"level": 1}))
    assert asyncio.run(memory.take_back({})) == {"wake_seconds": 0.1}
    assert sleeper.calls == ["release 1", "take back"]
    assert not list(folder.iterdir())


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ({"provider": "native", "bytes": 5}, {"provider": "native"}),
        (
            {"provider": "none", "reason": "damaged", "code": "pack.chunk-differs"},
            {
                "provider": "recovery",
                "provider_reason": "damaged",
                "provider_code": "pack.chunk-differs",
            },
        ),
        (
            {"provider": "none", "reason": "there is no payload pack"},
            {"provider": "recovery", "provider_reason": "there is no payload pack"},
        ),
    ],
)
def test_the_start_is_told_once(folder: Path, said: dict[str, Any], told: dict[str, Any]):
    assert folder.is_dir()
    with phases.phase("payload") as attributes:
        attributes.update(said)
    memory = TemplateMemory(Engine(), Sleeper())
    answer = asyncio.run(memory.take_back({}))
    spans = answer.pop("spans")
    assert answer == told
    assert [span["name"] for span in spans] == ["payload"]
    assert asyncio.run(memory.take_back({})) == {}
