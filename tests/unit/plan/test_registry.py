from __future__ import annotations

from importlib.metadata import EntryPoint
from types import SimpleNamespace

import pytest
from plan_pack import STEPS, Ask, DemoEngine, Note, Probe, demo_registry

from coldsnap.artifact.errors import ColdSnapError
from coldsnap.plan import registry as module
from coldsnap.plan.registry import Registry
from coldsnap.sdk import Pack


def test_what_is_installed_is_found():
    registry = Registry.installed()
    assert "core" in registry.packs
    assert all(name.split(".")[0] in registry.packs for name in registry.steps)
    assert {"reference", "vllm"} <= set(registry.engines)
    assert registry.engine("reference").name == "reference"


def test_near_names():
    registry = demo_registry()
    assert registry.step("demo.ask") is Ask
    for call, code, remedy in (
        (lambda: registry.step("demo.aks"), "plan.unknown-type", 'did you mean "demo.ask"?'),
        (lambda: registry.template("demo.capt"), "plan.unknown-template", "demo.capture"),
        (lambda: registry.engine("dmo"), "plan.unknown-engine", 'did you mean "demo"?'),
    ):
        with pytest.raises(ColdSnapError) as caught:
            call()
        assert caught.value.code == code
        assert remedy in caught.value.remedy


def _points(monkeypatch, **groups):
    points = {
        group: [EntryPoint(name, value, group) for name, value in entries]
        for group, entries in (
            (module.STEPS_GROUP, groups.get("steps", ())),
            (module.ENGINES_GROUP, groups.get("engines", ())),
        )
    }
    monkeypatch.setattr(module, "entry_points", lambda group: points[group])


@pytest.mark.parametrize(
    ("name", "value", "cause"),
    [
        ("gone", "no_such_package:PACK", "ModuleNotFoundError: No module named 'no_such_package'"),
        ("gone", "json:PACK", "AttributeError: module 'json' has no attribute 'PACK'"),
    ],
)
def test_a_pack_that_does_not_load_is_an_error_that_names_it(monkeypatch, name, value, cause):
    _points(monkeypatch, steps=[(name, value)])
    with pytest.raises(ColdSnapError) as caught:
        Registry.installed()
    assert caught.value.code == "pack.load-failed"
    assert caught.value.message == f"the pack '{name}' ({value}) cannot be loaded"
    assert caught.value.cause == cause
    _points(monkeypatch, engines=[(name, value)])
    with pytest.raises(ColdSnapError):
        Registry.installed()


def test_an_entry_point_seen_twice_counts_once(monkeypatch):
    _points(monkeypatch, steps=[("core", "coldsnap_core:PACK"), ("core", "coldsnap_core:PACK")])
    assert list(Registry.installed().packs) == ["core"]


@pytest.mark.parametrize(
    ("packs", "engines", "reason"),
    [
        ([SimpleNamespace(name="x")], {}, "its PACK is not a coldsnap.sdk.Pack"),
        ([Pack("demo"), Pack("demo")], {}, "two installed packs have this name"),
        ([Pack("other", {"demo.ask": Ask})], {}, "does not begin with other."),
        ([Pack("demo", {"demo.note": Ask})], {}, "the class of demo.note has type 'demo.ask'"),
        ([Pack("demo", {"demo.note": "x"})], {}, "is not a class derived from Step"),
        ([Pack("demo", STEPS)], {"other": DemoEngine}, "its engine calls itself 'demo'"),
        ([Pack("demo", STEPS)], {"demo": 3}, "its engine calls itself None"),
    ],
)
def test_a_pack_that_breaks_the_contract_is_refused(packs, engines, reason):
    with pytest.raises(ColdSnapError) as caught:
        Registry.from_packs(*packs, engines=engines)
    assert caught.value.code == "pack.invalid"
    assert reason in caught.value.message


def test_a_name_is_a_step_type_or_a_template(tmp_path):
    (tmp_path / "templates").mkdir()
    (tmp_path / "templates" / "probe.yaml").write_text("")
    with pytest.raises(ColdSnapError) as caught:
        Registry.from_packs(Pack("demo", {"demo.probe": Probe, "demo.note": Note}, tmp_path))
    assert "demo.probe is both a step type and a template" in caught.value.message


def test_engines_may_be_classes_or_instances():
    for engine in (DemoEngine, DemoEngine()):
        assert Registry.from_packs(engines={"demo": engine}).engine("demo").name == "demo"
