"""How a vLLM on a GPU gives its memory back and has it again, against an engine that records."""

from __future__ import annotations

import asyncio
import json
from types import SimpleNamespace

import pytest

from coldsnap_inside_vllm import graphs
from coldsnap_inside_vllm.control import Control, Refused
from coldsnap_inside_vllm.engine_memory import CudaMemory, HostMemory, memory_of
from coldsnap_inside_vllm.gate import Gate

GIB = 1 << 30
SPANS = ({"name": "payload", "start": 1.0, "seconds": 0.5, "attributes": {"bytes": 5}},)


class Engine:
    """What CudaMemory asks of vLLM's EngineClient."""

    def __init__(self, *, sleep_mode: bool = True, frees: bool = True, load=None) -> None:
        self.model_config = SimpleNamespace(enable_sleep_mode=sleep_mode)
        device = SimpleNamespace(device_type="cuda")
        self.vllm_config = SimpleNamespace(device_config=device)
        self.calls: list[str] = []
        self.free = 10 * GIB
        self._frees, self._asleep = frees, False
        self._load = load if load is not None else {"bytes": 5, "seconds": 0.1}
        self.fail_once = ""

    async def sleep(self, level: int) -> None:
        self.calls.append(f"sleep {level}")
        self._awake: set[str] = set()
        self._asleep = True
        self.free += 80 * GIB if self._frees else 0

    async def is_sleeping(self) -> bool:
        return self._asleep

    async def wake_up(self, tags: list[str]) -> None:
        self.calls.append(f"wake {' '.join(tags)}")
        self._awake |= set(tags)
        self._asleep = self._awake != {"weights", "kv_cache"}

    async def collective_rpc(self, name: str, args=()) -> list:
        self.calls.append(name)
        if name == self.fail_once:
            self.fail_once = ""
            raise OSError("no")
        return {
            "coldsnap_device_memory": [
                {"free": self.free, "pooled": 80 * GIB, "weights": 16 * GIB, "kv": 64 * GIB}
            ],
            "coldsnap_export": [{"bytes": 17}],
            "coldsnap_end_load": [{**self._load, "spans": list(SPANS)}],
            "coldsnap_trim": [{"device_used": 2 * GIB, "graphs_dropped": 3}],
            "coldsnap_recreate_graphs": [GIB],
            "coldsnap_map_rest": [GIB],
        }.get(name, [None])


def run(work):
    return asyncio.run(work)


def test_chosen_by_device():
    cpu = SimpleNamespace(device_config=SimpleNamespace(device_type="cpu"))
    assert isinstance(memory_of(SimpleNamespace(vllm_config=cpu)), HostMemory)
    assert isinstance(memory_of(Engine()), CudaMemory)


def test_exports_sleeps_and_says_what_it_will_need(tmp_path):
    engine = Engine()
    answer = run(CudaMemory(engine).release({"dir": str(tmp_path), "export": str(tmp_path)}))
    assert engine.calls.index("coldsnap_export") < engine.calls.index("sleep 2")
    assert answer["device_bytes"] == 80 * GIB
    assert answer["payload_bytes"] == 17
    assert json.loads((tmp_path / "device-memory.json").read_text())["bytes"] == 80 * GIB


def test_level_one_keeps_the_weights():
    engine = Engine()
    memory = CudaMemory(engine)
    run(memory.release({"level": 1, "export": "/x"}))
    assert "coldsnap_export" not in engine.calls
    assert "provider" not in run(memory.take_back({}))


def test_memory_that_stays_on_the_device_is_told():
    with pytest.raises(RuntimeError, match="freed 0 of"):
        run(CudaMemory(Engine(frees=False)).release({}))


def test_without_sleep_mode():
    with pytest.raises(RuntimeError, match="--enable-sleep-mode"):
        run(CudaMemory(Engine(sleep_mode=False)).release({}))


@pytest.fixture
def pack(tmp_path):
    for name in ("payload", "index"):
        (tmp_path / name).touch()
    return {"payload": str(tmp_path / "payload"), "index": str(tmp_path / "index")}


def back(engine, request):
    memory = CudaMemory(engine)
    run(memory.release({}))
    return run(memory.take_back(request))


def test_native_where_there_is_a_pack(pack):
    engine = Engine()
    answer = back(engine, pack)
    assert answer["provider"] == "native"
    assert engine.calls[-7:] == [
        "coldsnap_begin_load",
        "wake weights",
        "coldsnap_weights_are_mapped",
        "coldsnap_map_rest",
        "wake kv_cache",
        "coldsnap_clear_kv",
        "coldsnap_end_load",
    ], "bytes move while KV is mapped"
    assert "reload_weights" not in engine.calls
    (span,) = [span for span in answer["spans"] if span["name"] == "payload"]
    assert span["attributes"] == {"bytes": 5, "provider": "native"}
    assert [span["name"] for span in answer["spans"]][:2] == ["wake", "kv-remap"]


def test_recovery_with_its_reason(pack):
    assert back(Engine(), {})["provider_reason"] == "there is no payload pack"
    engine = Engine(load={"error": "chunk 3 differs", "code": "pack.chunk-differs"})
    answer = back(engine, pack)
    assert answer["provider"] == "recovery"
    assert answer["provider_reason"] == "chunk 3 differs"
    assert answer["provider_code"] == "pack.chunk-differs"
    assert engine.calls[-1] == "reload_weights"


def test_recovery_on_demand_opens_no_pack(pack):
    engine = Engine()
    assert back(engine, {**pack, "provider": "recovery"})["provider"] == "recovery"
    assert not [call for call in engine.calls if call.endswith("_load")]


def test_native_that_is_demanded_and_does_not_work(pack):
    load = {"error": "chunk", "code": "pack.chunk-differs"}
    with pytest.raises(RuntimeError, match="chunk"):
        back(Engine(load=load), {**pack, "provider": "native"})


def test_native_that_is_demanded_where_there_is_none():
    with pytest.raises(RuntimeError, match="no payload pack"):
        back(Engine(), {"provider": "native"})


def test_graphs_stay_unless_the_plan_says_otherwise(monkeypatch):
    engine = Engine()
    assert "coldsnap_recreate_graphs" not in (back(engine, {}), engine.calls)[1]
    monkeypatch.setenv(graphs.VARIABLE, graphs.RECREATE)
    engine = Engine()
    memory = CudaMemory(engine)
    told = run(memory.release({}))
    assert told["graphs"] == "recreate-from-plan"
    (trim,) = [span for span in told["spans"] if span["name"] == "trim"]
    assert trim["attributes"]["graphs_dropped"] == 3
    answer = run(memory.take_back({}))
    assert engine.calls[-1] == "coldsnap_recreate_graphs", "after the weights"
    assert answer["spans"][-1]["name"] == "graphs"
    assert "spans" not in run(memory.take_back({})), "and once only"


def test_a_second_try_brings_back_what_is_missing():
    engine = Engine()
    memory = CudaMemory(engine)
    run(memory.release({}))
    engine.fail_once = "reload_weights"
    with pytest.raises(OSError, match="no"):
        run(memory.take_back({}))
    run(memory.take_back({}))
    assert engine.calls.count("wake weights") == 1, "memory was back already"
    assert engine.calls.count("reload_weights") == 2
    assert run(memory.take_back({})) == {}, "and nothing is done twice"


async def _status(port: int, path: str, body: bytes = b"{}") -> int:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    head = f"POST {path} HTTP/1.1\r\ncontent-length: {len(body)}\r\n\r\n"
    writer.write(head.encode() + body)
    answer = await reader.read()
    writer.close()
    return int(answer.split()[1])


def test_gate_stays_closed_until_everything_is_back():
    async def scenario() -> None:
        engine, gate = Engine(), Gate()
        control = Control(CudaMemory(engine), gate)
        await control.start(0)
        port = control._server.sockets[0].getsockname()[1]
        assert await _status(port, "/quiesce") == 200
        assert gate.closed
        engine.fail_once = "reload_weights"
        assert await _status(port, "/resume") == 500
        assert gate.closed
        assert await _status(port, "/resume") == 200
        assert not gate.closed

    run(scenario())


def test_a_request_in_flight_is_waited_for_then_told():
    async def scenario() -> None:
        engine, gate = Engine(), Gate()
        gate.running = 1
        control = Control(CudaMemory(engine), gate)
        with pytest.raises(Refused, match="1 requests still run"):
            await control._quiesce({"drain_seconds": 0.05})
        assert not gate.closed
        assert not engine.calls, "nothing was taken from it"

    run(scenario())


def test_held_still_anew_it_sleeps_once():
    engine = Engine()
    memory = CudaMemory(engine)
    first = run(memory.release({}))
    again = run(memory.release({}))
    assert again["already"]
    assert again["kv_bytes"] == first["kv_bytes"]
    assert engine.calls.count("sleep 2") == 1
    run(memory.take_back({}))
    run(memory.release({}))
    assert engine.calls.count("sleep 2") == 2


def test_a_payload_is_written_while_it_serves():
    class Slow(Engine):
        polls = 0

        async def collective_rpc(self, name: str, args=()) -> list:
            if name == "coldsnap_exported":
                self.polls += 1
                return [None if self.polls < 3 else {"bytes": 17, "extents": 2}]
            return await super().collective_rpc(name, args)

    engine = Slow()
    memory = CudaMemory(engine)
    assert run(memory.export("/x"))["bytes"] == 17
    assert engine.polls == 3, "the engine's loop is asked, never held"
    assert not [call for call in engine.calls if call.startswith("sleep")]
    run(memory.release({}))
    with pytest.raises(RuntimeError, match="no weights"):
        run(memory.export("/x"))


def test_an_export_that_fails_is_told():
    class Broken(Engine):
        async def collective_rpc(self, name: str, args=()) -> list:
            if name == "coldsnap_exported":
                return [{"error": "OSError: no space"}]
            return await super().collective_rpc(name, args)

    with pytest.raises(RuntimeError, match="no space"):
        run(CudaMemory(Broken()).export("/x"))


def test_an_engine_that_is_held_still_writes_nothing():
    async def scenario() -> None:
        gate = Gate()
        control = Control(CudaMemory(Engine()), gate)
        gate.closed = True
        with pytest.raises(Refused, match="held still"):
            await control._export({"dir": "/x"})

    run(scenario())


def test_on_cpu_weights_are_read_again_only_on_demand():
    class Cpu(Engine):
        async def reset_prefix_cache(self) -> None: ...

        async def collective_rpc(self, name: str, args=()) -> list:
            self.calls.append(name)
            return [{"kv_bytes": 5}]

    engine = Cpu()
    memory = HostMemory(engine)
    assert run(memory.take_back({"provider": "recovery"})) == {}, "nothing was given back"
    run(memory.release({}))
    assert run(memory.take_back({"provider": "auto"}))["provider"] == "image"
    run(memory.release({}))
    assert run(memory.take_back({"provider": "recovery"}))["provider"] == "recovery"
    assert engine.calls.count("reload_weights") == 1
    assert run(memory.export("/x"))["bytes"] == 0
