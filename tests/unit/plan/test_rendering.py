from __future__ import annotations

import threading

import pytest
from plan_pack import found

from coldsnap.artifact.errors import ColdSnapError
from coldsnap.plan.loading import load_text
from coldsnap.plan.rendering import Renderer, RenderScope, UnknownOutput
from coldsnap.plan.variables import Given
from coldsnap.sdk import Unit

NOTHING = Given(environment={})
HEAD = "coldsnap: plan/v1\nname: x\nengine: demo\nmodel: {id: org/m, source: hf}\n"


def renderer(text, registry):
    plan = load_text(HEAD + text, registry, NOTHING)
    return plan, Renderer(plan, registry)


def scope(**outputs):
    return RenderScope(
        host="gpu-1",
        host_vars={"port": 8001, "n": 5, "gpu": True},
        host_facts={"memory": 64},
        unit=Unit(id="u7", devices=(0, 1)),
        outputs=lambda step: outputs.get(step.replace(".", "_")),
    )


def test_parameters_are_typed_and_see_host_unit_model_plan_and_outputs(registry):
    plan, render = renderer(
        "vars: {low: {type: int, default: 2}}\n"
        "steps:\n"
        "  - {id: probe, type: demo.probe, with: {timeout: 2m, count: '{{ host.vars.n }}'}}\n"
        "  - id: ask\n"
        "    type: demo.ask\n"
        "    needs: [probe]\n"
        "    with:\n"
        "      prompt: '{{ host.name }} {{ unit.id }} {{ model.path }} {{ plan.name }}'\n"
        "      low: '{{ vars.low }}'\n"
        "      high: '{{ steps.probe.outputs.free }}'\n",
        registry,
    )
    probe, ask = plan.steps
    assert render.spec(probe, scope()).count == 5
    assert render.spec(probe, scope()).timeout == 120.0
    spec = render.spec(ask, scope(probe={"free": 9}))
    assert (spec.prompt, spec.low, spec.high) == ("gpu-1 u7 org/m x", 2, 9)


def test_an_output_that_is_not_known_yet_is_told_apart_from_a_missing_one(registry):
    plan, render = renderer(
        "steps:\n"
        "  - {id: probe, type: demo.probe}\n"
        "  - id: ask\n"
        "    type: demo.ask\n"
        "    needs: [probe]\n"
        "    with: {prompt: 'x', high: '{{ steps.probe.outputs.free }}'}\n",
        registry,
    )
    ask = plan.steps[1]
    with pytest.raises(UnknownOutput) as unknown:
        render.spec(ask, scope())
    assert (unknown.value.step, unknown.value.name) == ("probe", "free")
    assert str(unknown.value) == "steps.probe.outputs.free"
    with pytest.raises(ColdSnapError) as missing:
        render.spec(ask, scope(probe={}))
    assert found(missing.value) == [
        'plan.undefined-value 10:31+32 step "ask": "steps.probe.outputs.free": there is no "free"'
    ]


def test_default_fills_in_for_a_skipped_step_but_not_for_an_unknown_one(registry):
    plan, render = renderer(
        "steps:\n"
        "  - {id: probe, type: demo.probe}\n"
        "  - id: ask\n"
        "    type: demo.ask\n"
        "    needs: [probe]\n"
        "    with: {prompt: 'x', high: '{{ steps.probe.outputs.free | default(3) }}'}\n",
        registry,
    )
    assert render.spec(plan.steps[1], scope(probe={})).high == 3
    with pytest.raises(UnknownOutput):
        render.spec(plan.steps[1], scope())


def test_outputs_go_through_templates(registry):
    plan, render = renderer(
        "steps:\n"
        "  - {id: p, type: demo.probe}\n"
        "  - {id: t, uses: demo.twice, needs: [p], with: {text: '{{ steps.p.outputs.profile }}'}}\n"
        "  - id: end\n"
        "    type: demo.ask\n"
        "    needs: [t]\n"
        "    with: {prompt: '{{ steps.t.outputs.answer }}'}\n",
        registry,
    )
    known = {"p": {"profile": "big"}, "t_inner_ask": {"answer": "yes"}}
    assert render.spec(plan.step("t.first"), scope(**known)).text == "big"
    assert render.spec(plan.step("t.inner.ask"), scope(**known)).prompt == "big!"
    assert render.spec(plan.step("end"), scope(**known)).prompt == "yes"
    with pytest.raises(UnknownOutput) as unknown:
        render.spec(plan.step("t.inner.ask"), scope())
    assert unknown.value.step == "p"


def test_an_input_of_the_wrong_type_is_shown_where_it_is_given(registry):
    plan, render = renderer(
        "steps:\n"
        "  - {id: p, type: demo.probe}\n"
        "  - {id: t, uses: demo.twice, needs: [p], with: {text: '{{ steps.p.outputs.free }}'}}\n",
        registry,
    )
    with pytest.raises(ColdSnapError) as caught:
        render.spec(plan.step("t.first"), scope(p={"free": 3}))
    assert found(caught.value) == [
        'plan.wrong-type 7:56+28 step "t.first": input "text" of demo.twice must be text, not 3'
    ]
    assert caught.value.source.file == "plan.yaml"


@pytest.mark.parametrize(
    ("when", "expected"),
    [
        ("true", True),
        ("false", False),
        ("host.vars.gpu", True),
        ("'{{ host.vars.n > 5 }}'", False),
        ("host.facts.memory >= 64", True),
        ("unit.devices | length == 2", True),
        ("host.vars.none | default(false)", False),
    ],
)
def test_when(registry, when, expected):
    plan, render = renderer(
        f"steps: [{{id: a, type: demo.ask, with: {{prompt: x}}, when: {when}}}]\n", registry
    )
    assert render.holds(plan.steps[0], scope()) is expected


def test_when_of_a_use_and_of_its_steps_must_both_hold(registry):
    text = "steps: [{id: c, uses: demo.capture, with: {prompt: x}, when: host.vars.n == %d}]\n"
    for number, expected in ((5, True), (6, False)):
        plan, render = renderer(text % number, registry)
        assert {render.holds(node, scope()) for node in plan.steps} == {expected}


def test_when_must_be_a_bool(registry):
    plan, render = renderer("steps: [{id: a, type: demo.note, when: '{{ 1 }}'}]\n", registry)
    with pytest.raises(ColdSnapError) as caught:
        render.holds(plan.steps[0], scope())
    assert found(caught.value) == [
        (
            'plan.wrong-type 5:40+9 step "a": when must be true or false, not 1'
            " -> compare it: when: x == 1, or x | bool"
        )
    ]


def test_facts_that_nobody_read_are_unknown(registry):
    plan, render = renderer(
        "steps: [{id: a, type: demo.probe, when: host.facts.memory > 1}]\n", registry
    )
    with pytest.raises(UnknownOutput):
        render.holds(plan.steps[0], RenderScope(host="gpu-1"))


def test_a_value_that_a_host_makes_wrong_has_its_place(registry):
    plan, render = renderer(
        "steps: [{id: a, type: demo.probe, with: {count: '{{ host.vars.port }}'}}]\n", registry
    )
    with pytest.raises(ColdSnapError) as caught:
        render.spec(plan.steps[0], scope())
    assert found(caught.value) == [
        (
            'plan.wrong-value 5:49+22 "with.count" in step "a": must be less than or equal to 9'
            " -> See: coldsnap step show demo.probe"
        )
    ]


def test_units_are_filled_in_per_host(registry):
    plan, render = renderer(
        "vars: {length: {type: int, default: 8192}}\n"
        "units:\n"
        "  - id: u0\n"
        "    command: [serve, '{{ model.path }}', '{{ vars.length }}', '{{ host.vars.n }}']\n"
        "    env: {N: '{{ host.vars.n }}', K: v}\n"
        "    mounts: [{source: '{{ host.vars.dir }}', target: /m}]\n"
        "    ports: [{port: '{{ host.vars.port }}'}]\n"
        "steps: [{id: a, type: demo.ask, with: {prompt: x}}]\n",
        registry,
    )
    unit = plan.topology.units[0]
    assert unit.command == ("serve", "org/m", "8192", "{{ host.vars.n }}")
    assert unit.ports[0].port is None
    here = RenderScope("h", {"n": 5, "port": 8001, "dir": "/data"}, unit=unit)
    filled = render.unit("u0", here)
    assert filled.command == ("serve", "org/m", "8192", "5")
    assert filled.env == {"N": "5", "K": "v"}
    assert (filled.mounts[0].source, filled.ports[0].port) == ("/data", 8001)
    with pytest.raises(ColdSnapError) as caught:
        render.unit("u0", RenderScope("h", {"n": 5, "dir": "/data"}))
    assert found(caught.value) == [
        'plan.undefined-value 11:20+22 unit "u0": "host.vars.port": there is no "port"'
    ]
    with pytest.raises(ColdSnapError) as caught:
        render.unit("u0", RenderScope("h", {"n": 5, "port": "x", "dir": "/data"}))
    assert caught.value.message == '"ports[0].port" in unit "u0": must be an integer, not "x"'


def test_static_parameters_are_made_once(registry):
    plan, render = renderer(
        "steps:\n"
        "  - {id: a, type: demo.ask, with: {prompt: '{{ plan.name }}'}}\n"
        "  - {id: b, type: demo.ask, with: {prompt: '{{ host.name }}'}}\n",
        registry,
    )
    first, second = plan.steps
    assert render.is_static(first)
    assert not render.is_static(second)
    assert render.spec(first, scope()) is render.spec(first, RenderScope("other"))
    assert render.spec(second, RenderScope("other")).prompt == "other"


def test_many_threads(registry):
    plan, render = renderer(
        "steps: [{id: b, type: demo.ask, with: {prompt: '{{ host.name + \"!\" }}'}}]\n", registry
    )
    wrong = []

    def work(name):
        here = RenderScope(name)
        prompts = {render.spec(plan.steps[0], here).prompt for _ in range(200)}
        wrong.extend(prompts - {name + "!"})

    threads = [threading.Thread(target=work, args=(f"h{i}",)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
