"""CUDA graphs after the first answers: when, and what happens to requests meanwhile."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from coldsnap_inside_vllm import later
from coldsnap_inside_vllm.control import Control
from coldsnap_inside_vllm.gate import Gate

SCOPE = {"type": "http", "path": "/v1/completions"}


class Runner:
    """vLLM's newer model runner, as far as graphs are concerned."""

    def __init__(self) -> None:
        self.cudagraph_manager = SimpleNamespace(_graphs_captured=False)

    def capture_model(self) -> int:
        return 7


@pytest.mark.parametrize(
    ("wanted", "planned", "captured"),
    [("later", True, 0), ("later", False, 7), ("", True, 7)],
)
def test_graphs_are_left_out_where_the_plan_fits_and_the_unit_wants_it(
    monkeypatch: pytest.MonkeyPatch, wanted: str, planned: bool, captured: int
):
    monkeypatch.setenv(later.VARIABLE, wanted)
    runner = Runner()
    with later.without_graphs(runner, planned=planned) as left_out:
        assert runner.capture_model() == captured
        assert left_out is (captured == 0)
    assert runner.capture_model() == 7


def test_the_older_runner_captures_at_once(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv(later.VARIABLE, later.LATER)
    with later.without_graphs(SimpleNamespace(capture_model=None), planned=True) as left_out:
        assert not left_out


class Memory:
    """An engine that serves before it is warm."""

    def __init__(self, fails: bool = False) -> None:
        self.fails = fails
        self.begun, self.goes_on = asyncio.Event(), asyncio.Event()
        self.done = False

    async def take_back(self, request: dict[str, Any]) -> dict[str, Any]:
        return request

    async def is_unfinished(self) -> bool:
        return not self.done

    async def finish(self) -> None:
        self.begun.set()
        await self.goes_on.wait()
        if self.fails:
            raise RuntimeError("out of memory")
        self.done = True


@pytest.fixture(autouse=True)
def fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(later, "QUIET_SECONDS", 0.02)
    monkeypatch.setattr(later, "_POLL_SECONDS", 0.005)


async def _answer(scope: Any, receive: Any, send: Any) -> None:
    del receive
    await send(scope["path"])


async def _ask(gate: Gate, got: list[str]) -> None:
    async def send(message: Any) -> None:
        got.append(message)

    await gate.wrap(_answer)(dict(SCOPE), None, send)


@pytest.mark.parametrize("fails", [False, True])
def test_requests_wait_while_the_engine_is_finished(fails: bool, capsys: Any):
    async def run() -> None:
        memory, gate = Memory(fails), Gate()
        control = Control(memory, gate)
        await control._resume({})
        got: list[str] = []
        await _ask(gate, got)
        assert not memory.begun.is_set(), "the first answer comes first"
        await asyncio.wait_for(memory.begun.wait(), 5)
        waits = asyncio.create_task(_ask(gate, got))
        await asyncio.sleep(0.02)
        assert len(got) == 1
        memory.goes_on.set()
        await asyncio.wait_for(waits, 5)
        assert len(got) == 2
        assert memory.done is not fails

    asyncio.run(run())
    assert ("no CUDA graphs: RuntimeError: out of memory" in capsys.readouterr().err) is fails


def test_nothing_is_finished_while_nobody_asks():
    async def run() -> None:
        memory, gate = Memory(), Gate()
        await Control(memory, gate)._resume({})
        await asyncio.sleep(0.1)
        assert not memory.begun.is_set()

    asyncio.run(run())
