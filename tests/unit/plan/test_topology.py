from __future__ import annotations

import itertools
import time

from plan_pack import demo_registry

from coldsnap.plan.items import find_cycle
from coldsnap.plan.loading import load_text
from coldsnap.plan.variables import Given

NOTHING = Given(environment={})
HEAD = "coldsnap: plan/v1\nname: x\nengine: demo\nmodel: {id: m, path: /m}\n"
STEPS = "steps: [{type: demo.ask, with: {prompt: x}}]\n"


def topology(registry, text=""):
    return load_text(HEAD + text + STEPS, registry, NOTHING).topology


def test_one_unit_worker_service_and_world_are_implied(registry):
    found = topology(registry)
    assert [unit.id for unit in found.units] == ["u0"]
    assert found.units[0].hosts == "all"
    assert [(w.id, w.unit, w.service, w.device_slots) for w in found.workers] == [
        ("w0", "u0", "serve", ())
    ]
    assert [(g.id, g.kind, g.members) for g in found.groups] == [
        ("serve-world", "serve:world", ("w0",))
    ]
    assert [(s.id, s.workers) for s in found.services] == [("serve", ("w0",))]


def test_a_worker_takes_all_devices_of_its_unit_unless_workers_are_given(registry):
    found = topology(registry, "units: [{id: a, devices: [2, 3]}]\n")
    assert found.workers[0].device_slots == (0, 1)
    found = topology(
        registry,
        "units: [{id: a, devices: [2, 3]}]\n"
        "workers:\n"
        "  - {id: r0, unit: a, device_slots: [0]}\n"
        "  - {id: r1, unit: a, process_slot: 1, device_slots: [1]}\n"
        "groups: [{id: tp, kind: 'vllm:tp', members: [r0, r1]}]\n",
    )
    assert [(g.id, g.kind, g.members) for g in found.groups] == [
        ("tp", "vllm:tp", ("r0", "r1")),
        ("serve-world", "serve:world", ("r0", "r1")),
    ]


def test_several_services_have_a_world_each(registry):
    found = topology(
        registry,
        "units: [{id: p, hosts: a}, {id: d, hosts: b}]\n"
        "workers: [{id: wp, unit: p, service: prefill}, {id: wd, unit: d, service: decode}]\n"
        "services: [{id: prefill, role: prefill, workers: [wp]}, {id: decode, workers: [wd]}]\n",
    )
    assert [(g.service, g.members) for g in found.groups] == [
        ("prefill", ("wp",)),
        ("decode", ("wd",)),
    ]


def test_a_plan_without_engine_and_units_has_no_topology(registry):
    plan = load_text("coldsnap: plan/v1\nname: x\nsteps: [{type: demo.probe}]\n", registry, NOTHING)
    assert (plan.engine, plan.model, plan.topology, plan.raw_units) == (None, None, None, {})
    assert plan.store == "oci-layout:{state_dir}/store"


def test_units_on_other_hosts_may_share_ports_and_devices(registry):
    found = topology(
        registry, "units: [{id: a, hosts: x, devices: [0]}, {id: b, hosts: y, devices: [0]}]\n"
    )
    assert len(found.units) == 2


def test_ports_that_a_host_fills_in_are_not_compared(registry):
    found = topology(
        registry,
        "units: [{id: a}, {id: b, ports: [{port: '{{ host.vars.second_port }}'}]}]\n",
    )
    assert [unit.ports[0].port for unit in found.units] == [None, None]


def test_find_cycle_against_all_graphs_of_three_steps():
    """Every one of the 512 graphs: a cycle is found exactly where no order exists."""
    edges = [(a, b) for a in "abc" for b in "abc"]
    for count in range(len(edges) + 1):
        for chosen in itertools.combinations(edges, count):
            needs = {name: [b for a, b in chosen if a == name] for name in "abc"}
            cycle = find_cycle(needs)
            assert bool(cycle) == (not _has_order(needs))
            for one, other in zip(cycle, (*cycle[1:], *cycle[:1]), strict=True):
                assert other in needs[one]


def _has_order(needs):
    return any(
        all(order.index(need) < order.index(name) for name in needs for need in needs[name])
        for order in itertools.permutations(needs)
    )


def test_a_chain_of_a_thousand_steps_is_loaded_without_deep_recursion():
    registry = demo_registry()
    steps = "".join(
        f"  - {{id: s{i}, type: demo.note, needs: [{f's{i - 1}' if i else ''}]}}\n"
        for i in range(1000)
    )
    plan = load_text("coldsnap: plan/v1\nname: x\nsteps:\n" + steps, registry, NOTHING)
    assert plan.steps[-1].needs == ("s998",)


def test_fifty_steps_load_fast():
    registry = demo_registry()
    steps = "".join(
        f"  - id: s{i}\n    type: demo.ask\n    needs: [{f's{i - 1}' if i else ''}]\n"
        "    with: {prompt: '{{ model.id }} {{ host.name }}', low: 1}\n    retry: {attempts: 3}\n"
        for i in range(50)
    )
    text = HEAD + "steps:\n" + steps
    load_text(text, registry, NOTHING)
    best = min(_seconds(text, registry) for _ in range(3))
    assert best < 0.3


def _seconds(text, registry):
    start = time.process_time()
    load_text(text, registry, NOTHING)
    return time.process_time() - start
