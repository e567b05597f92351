"""Which vLLM driver n580 knows: by the functions that it builds on, each with its name."""

from __future__ import annotations

import sys
from types import ModuleType

import pytest

from coldsnap_inside_vllm import contract
from coldsnap_inside_vllm.contract import CPU, CUDA, HOOKS, Hook, misfit, unfit


class Worker:
    total: int

    def load_model(self, *, dummy: bool = False) -> None: ...

    def warm(self, sizes: list[int]) -> None: ...

    def forwards(self, *args: object, **kwargs: object) -> None: ...


@pytest.fixture(autouse=True)
def module(monkeypatch: pytest.MonkeyPatch) -> None:
    made = ModuleType("some_worker")
    made.Worker = Worker
    monkeypatch.setitem(sys.modules, "some_worker", made)


def reasons(name: str, *parameters: str, platform: str = CUDA) -> list[str]:
    return unfit([Hook("some_worker", name, parameters, platform)], platform=CUDA)


def test_what_is_there_fits():
    assert reasons("Worker.load_model", "self") == []
    assert reasons("Worker.warm", "self", "sizes") == []
    assert reasons("Worker.warm", "self") == [], "what we leave out has a place"
    assert reasons("Worker.forwards", "self", "sizes") == []
    assert reasons("Worker.total") == [], "a field without a default"


def test_what_is_not_is_named():
    assert reasons("Worker.profile") == ["it has no some_worker.Worker.profile"]
    assert "no_such_worker" in unfit([Hook("no_such_worker", "Worker")], platform=CPU)[0]
    (reason,) = reasons("Worker.warm", "self", "shapes")
    assert reason == "some_worker.Worker.warm(self, sizes) does not take self, shapes"


def test_the_other_platforms_are_not_looked_at():
    assert reasons("Worker.profile", platform=CPU) == []


def test_a_refusal_names_the_version(monkeypatch: pytest.MonkeyPatch):
    hooks = (Hook("some_worker", "Worker.a"), Hook("some_worker", "Worker.b"))
    monkeypatch.setattr(contract, "unfit", lambda *, platform: unfit(hooks, platform=platform))
    with pytest.raises(RuntimeError) as caught:
        contract.require(platform=CPU, version="9.9")
    said = "driver n580 does not know vLLM 9.9: it has no some_worker.Worker.a (and 1 more)"
    assert str(caught.value) == said


def test_every_hook_says_what_it_is_for():
    assert all(hook.used for hook in HOOKS)
    assert misfit(Hook("m", "f", ("a",)), ["a", "b"], takes_more=False) == ""
