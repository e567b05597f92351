"""The worker extension against stand-ins of torch and vLLM that keep their documented shape."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace

import pytest

from coldsnap_inside_vllm import graphs, trimming
from coldsnap_inside_vllm.worker import ColdSnapWorker

MIB = 1 << 20


class Cuda:
    """What of torch.cuda is asked; `calls` in order."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.segments = [
            segment(0x1000, 512, 512, (0, 7)),  # weights, asleep
            segment(0x2000, 600, 600, (1, 0)),  # graphs
            segment(0x3000, 100, 40, (0, 0)),
        ]

    def __getattr__(self, name):
        return lambda *_args: self.calls.append(name)

    def default_stream(self):
        return SimpleNamespace(synchronize=lambda: self.calls.append("default_stream"))

    def mem_get_info(self):
        return 140 * MIB, 141 * MIB * 10

    def memory_snapshot(self):
        return self.segments


def segment(address, total, used, pool):
    sizes = {"total_size": total * MIB, "allocated_size": used * MIB}
    return {"address": address, "segment_pool_id": pool, **sizes}


@pytest.fixture
def torch(monkeypatch):
    module = ModuleType("torch")
    module.cuda = Cuda()
    calls = module.cuda.calls
    module._C = SimpleNamespace(
        _host_emptyCache=lambda: calls.append("host"),
        _cuda_clearCublasWorkspaces=lambda: calls.append("cublas"),
    )
    monkeypatch.setitem(sys.modules, "torch", module)
    return module


class Wrapper:
    """As vLLM's CUDAGraphWrapper: a registry of instances, entries by batch shape."""

    _all_instances: set = set()  # noqa: RUF012

    def __init__(self, shapes: int) -> None:
        self.concrete_cudagraph_entries = dict.fromkeys(range(shapes), "graph")
        Wrapper._all_instances.add(self)

    @classmethod
    def clear_all_graphs(cls) -> None:
        for wrapper in cls._all_instances:
            wrapper.concrete_cudagraph_entries.clear()


@pytest.fixture
def vllm(monkeypatch):
    Wrapper._all_instances = set()
    names = ("vllm", "vllm.compilation", "vllm.device_allocator", "vllm.config")
    for name in names:
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    graph = ModuleType("vllm.compilation.cuda_graph")
    graph.CUDAGraphWrapper = Wrapper
    monkeypatch.setitem(sys.modules, graph.__name__, graph)
    allocator = ModuleType("vllm.device_allocator.cumem")
    data = SimpleNamespace(tag="weights", handle=(0, 512 * MIB))
    one = SimpleNamespace(pointer_to_data={0x1000: data})
    allocator.CuMemAllocator = SimpleNamespace(get_instance=lambda: one)
    monkeypatch.setitem(sys.modules, allocator.__name__, allocator)
    configured = []

    class Current:
        def __init__(self, config):
            self.config = config

        def __enter__(self):
            configured.append(self.config)

        def __exit__(self, *_):
            configured.append(None)

    sys.modules["vllm.config"].set_current_vllm_config = Current
    return SimpleNamespace(configured=configured)


def worker() -> ColdSnapWorker:
    made = ColdSnapWorker()
    mode = SimpleNamespace(name="FULL_AND_PIECEWISE")
    made.vllm_config = "config"
    made.model_runner = SimpleNamespace(
        compilation_config=SimpleNamespace(cudagraph_mode=mode), capture_model=lambda: 3 * MIB
    )
    return made


def test_trimming_keeps_graphs_and_their_workspaces(torch, vllm):
    Wrapper(5)
    told = worker().coldsnap_trim("preserve-exec")
    assert told["graphs_dropped"] == 0
    assert "cublas" not in torch.cuda.calls, "a graph has the workspace's address in it"
    assert torch.cuda.calls.index("synchronize") < torch.cuda.calls.index("empty_cache")
    assert "host" in torch.cuda.calls
    assert told["device_graph_pools"] == 600 * MIB
    assert told["device_tensors"] == 40 * MIB
    assert told["device_cached"] == 60 * MIB
    assert told["host_bytes"] > 0


def test_what_sleeps_holds_nothing(torch):
    assert trimming.device_state(torch, {0x1000})["device_graph_pools"] == 600 * MIB
    assert trimming.device_state(torch, set())["device_graph_pools"] == 1112 * MIB


def test_graphs_that_are_made_again_go_with_their_workspaces(torch, vllm):
    wrappers = [Wrapper(3), Wrapper(2)]
    manager = SimpleNamespace(cleared=False)
    manager.clear = lambda: setattr(manager, "cleared", True)
    mine = worker()
    mine.model_runner.encoder_cudagraph_manager = manager
    told = mine.coldsnap_trim("recreate-from-plan")
    assert told["graphs_dropped"] == 5
    assert not any(wrapper.concrete_cudagraph_entries for wrapper in wrappers)
    assert manager.cleared
    assert "cublas" in torch.cuda.calls
    assert mine.coldsnap_recreate_graphs() == 3 * MIB
    assert vllm.configured == ["config", None]


def test_graphs_of_the_newer_model_runner_go_too(torch, vllm):
    mine = worker()
    whole = SimpleNamespace(graphs={1: "graph", 2: "graph"}, _graphs_captured=True)
    mine.model_runner.cudagraph_manager = whole
    Wrapper(3)
    assert mine.coldsnap_trim("recreate-from-plan")["graphs_dropped"] == 5
    assert not whole.graphs
    assert not whole._graphs_captured, "it runs without until they are there again"


def test_graphs_of_a_speculator_are_refused(torch, vllm):
    mine = worker()
    mine.model_runner.speculator = object()
    with pytest.raises(RuntimeError, match="speculator"):
        mine.coldsnap_trim("recreate-from-plan")


def test_what_sleeps_beside_weights_and_kv_is_mapped_and_zeroed(torch, vllm, monkeypatch):
    zeroed = []
    wrapper = ModuleType("vllm.distributed.device_communicators.cuda_wrapper")
    runtime = SimpleNamespace(cudaMemset=lambda at, value, size: zeroed.append((at.value, size)))
    wrapper.CudaRTLibrary = lambda: runtime
    monkeypatch.setitem(sys.modules, wrapper.__name__, wrapper)
    cumem = sys.modules["vllm.device_allocator.cumem"]
    one = cumem.CuMemAllocator.get_instance()
    woken = []
    one.wake_up = woken.append
    assert worker().coldsnap_map_rest() == 0
    assert not woken
    one.pointer_to_data[0x9000] = SimpleNamespace(tag="default", handle=(0, 2 * MIB))
    torch.cuda.calls.clear()
    assert worker().coldsnap_map_rest() == 2 * MIB
    assert torch.cuda.calls == ["default_stream"], "weights come meanwhile, on other streams"
    assert woken == [["default"]]
    assert zeroed == [(0x9000, 2 * MIB)]


def test_graphs_that_cannot_be_found_are_told(torch, vllm):
    with pytest.raises(RuntimeError, match="does not tell where"):
        graphs.drop(worker().model_runner)


def test_an_eager_engine_has_none_to_drop(torch, vllm):
    mine = worker()
    mine.model_runner.compilation_config.cudagraph_mode = SimpleNamespace(name="NONE")
    assert mine.coldsnap_trim("recreate-from-plan")["graphs_dropped"] == 0


def test_methods_cannot_shadow_those_of_vllm():
    public = [name for name in dir(ColdSnapWorker) if not name.startswith("__")]
    assert all(name.startswith("coldsnap_") for name in public)
