"""The memory of graphs in the sleeping allocator, or why not: stand-ins of torch and vLLM."""

from __future__ import annotations

import contextlib
import sys
from types import ModuleType, SimpleNamespace

import pytest

from coldsnap_inside_vllm import graph_pool, graphs

WORLD = SimpleNamespace()


class Tensor:
    """A number that lives in memory which can be taken away."""

    def __init__(self, value: float) -> None:
        self.value = value

    def __mul__(self, factor):
        return Tensor(self.value * factor)

    def __add__(self, more):
        return Tensor(self.value + more)

    def sqrt(self):
        made = Tensor(self.value**0.5)
        if WORLD.capturing is not None:
            WORLD.capturing.made = made
            if WORLD.uses_pool:
                data = SimpleNamespace(tag="default", handle=made)
                WORLD.allocator.pointer_to_data[0x7000] = data
        return made


class Graph:
    made: Tensor

    def replay(self) -> None:
        self.made.value = 5.0**0.5 if WORLD.survives or not WORLD.taken else 0.0


@pytest.fixture
def world(monkeypatch):
    """vLLM 0.24 with one GPU, as far as the pool is concerned."""
    allocator = SimpleNamespace(
        pointer_to_data={0x1000: SimpleNamespace(tag="weights", handle=None)},
        allocator_and_pools={},
        python_malloc_callback=None,
        python_free_callback=None,
    )
    found = SimpleNamespace(
        allocator=allocator, capturing=None, uses_pool=True, survives=True, taken=0
    )
    monkeypatch.setattr(sys.modules[__name__], "WORLD", found)

    @contextlib.contextmanager
    def capture(graph, pool):
        assert pool == (0, 9)
        found.capturing = graph
        yield
        found.capturing = None

    torch = ModuleType("torch")
    torch.float32 = "float32"
    torch.arange = lambda *_a, **_k: Tensor(2.0)
    torch.equal = lambda one, other: one.value == other.value
    torch.cuda = SimpleNamespace(
        MemPool=lambda _allocator: SimpleNamespace(id=(0, 9)),
        CUDAGraph=Graph,
        graph=capture,
        synchronize=lambda: None,
    )
    cumem = ModuleType("vllm.device_allocator.cumem")
    cumem.CuMemAllocator = SimpleNamespace(get_instance=lambda: allocator)
    cumem.get_pluggable_allocator = lambda *_callbacks: SimpleNamespace(_allocator="a")
    cumem.unmap_and_release = lambda handle: setattr(handle, "value", 0.0)
    cumem.create_and_map = lambda _handle: setattr(found, "taken", found.taken + 1)

    class Platform:
        _global_graph_pool = None

    platforms = ModuleType("vllm.platforms")
    platforms.current_platform = Platform()
    found.platform = Platform
    found.wrapper = SimpleNamespace(graph_pool=(1, 0))
    registry = SimpleNamespace(_all_instances=[found.wrapper])
    monkeypatch.setattr(graphs, "wrapper_classes", lambda: [registry])
    for module in (
        torch,
        cumem,
        platforms,
        ModuleType("vllm"),
        ModuleType("vllm.device_allocator"),
    ):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    return found


def worker(*, sleeps: bool = True, gpus: int = 1):
    return SimpleNamespace(
        vllm_config=SimpleNamespace(
            model_config=SimpleNamespace(enable_sleep_mode=sleeps),
            parallel_config=SimpleNamespace(world_size=gpus),
        )
    )


def test_graphs_use_it_those_to_come_and_those_of_wrappers(world):
    assert graph_pool.prepare(worker()) == ""
    assert world.platform._global_graph_pool == (0, 9)
    assert world.wrapper.graph_pool == (0, 9)
    assert world.taken == 1, "its memory was taken away and given back"
    assert world.allocator.allocator_and_pools, "and the pool lives on"


@pytest.mark.parametrize(
    ("change", "reason"),
    [({"uses_pool": False}, "did not come from"), ({"survives": False}, "answers differently")],
)
def test_where_the_trial_fails_torch_keeps_them(world, change, reason):
    vars(world).update(change)
    assert reason in graph_pool.prepare(worker())
    assert world.platform._global_graph_pool is None
    assert world.wrapper.graph_pool == (1, 0)


def test_where_it_cannot_be(world):
    assert "sleep mode" in graph_pool.prepare(worker(sleeps=False))
    assert "several GPUs" in graph_pool.prepare(worker(gpus=2))


def test_installed_once_and_only_where_it_is_wanted(world, monkeypatch, caplog):
    class Worker:
        vllm_config = worker(gpus=4).vllm_config

        def determine_available_memory(self):
            return 17

    module = ModuleType("vllm.v1.worker.gpu_worker")
    module.Worker = Worker
    original = Worker.determine_available_memory
    graph_pool.install()  # a process without that worker
    monkeypatch.setitem(sys.modules, module.__name__, module)
    for name, value in ((graph_pool.VARIABLE, "0"), (graphs.VARIABLE, "disabled")):
        with monkeypatch.context() as changed:
            changed.setenv(name, value)
            graph_pool.install()
        assert Worker.determine_available_memory is original
    graph_pool.install()
    wrapped = Worker.determine_available_memory
    graph_pool.install()
    assert Worker.determine_available_memory is wrapped
    assert Worker().determine_available_memory() == 17
    assert "several GPUs" in caplog.text, "why not is in the engine's log"
