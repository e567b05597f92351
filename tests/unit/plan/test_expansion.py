from __future__ import annotations

import pytest
from plan_pack import demo_registry, found

from coldsnap.artifact.errors import ColdSnapError
from coldsnap.plan.loading import load_text
from coldsnap.plan.model import OnFailure, Retry
from coldsnap.plan.variables import Given

NOTHING = Given(environment={})
HEAD = "coldsnap: plan/v1\nname: x\nengine: demo\nmodel: {id: m, path: /m}\n"


def load(text, registry):
    return load_text(HEAD + text, registry, NOTHING)


def needs(plan):
    return {node.id: node.needs for node in plan.steps}


def test_a_use_becomes_steps_with_its_id_before_them(registry):
    plan = load(
        "steps:\n"
        "  - {id: setup, type: demo.note}\n"
        "  - {uses: demo.capture, needs: [setup], with: {prompt: Hi}}\n"
        "  - {id: done, type: demo.note, needs: [capture]}\n",
        registry,
    )
    assert needs(plan) == {
        "setup": (),
        "capture.probe": ("setup",),
        "capture.ask": ("capture.probe",),
        "capture.other": ("capture.probe",),
        "done": ("capture.ask", "capture.other"),
    }
    assert [node.template for node in plan.steps] == [None, *["demo.capture"] * 3, None]
    assert [node.use for node in plan.steps] == [None, *["capture"] * 3, None]


def test_a_template_of_a_template(registry):
    plan = load(
        "steps:\n"
        "  - id: t\n"
        "    uses: demo.twice\n"
        "    with: {text: Hi, limit: 5m}\n"
        "    hosts: gpu\n"
        "    when: plan.name == 'x'\n"
        "  - id: end\n"
        "    type: demo.ask\n"
        "    needs: [t]\n"
        "    with: {prompt: '{{ steps.t.outputs.answer }}'}\n",
        registry,
    )
    assert needs(plan) == {
        "t.first": (),
        "t.inner.probe": ("t.first",),
        "t.inner.ask": ("t.inner.probe",),
        "t.inner.other": ("t.inner.probe",),
        "end": ("t.inner.ask", "t.inner.other"),
    }
    first, *inner, end = plan.steps
    assert first.timeout == 300.0
    assert [node.hosts for node in plan.steps] == ["gpu"] * 4 + [None]
    assert [node.template for node in inner] == ["demo.capture"] * 3
    assert {node.use for node in inner} == {"t"}
    assert all(len(node.outer_when) == 1 for node in (first, *inner))
    assert end.outer_when == ()


def test_a_step_s_own_hosts_win_over_the_use_s(tmp_path):
    registry = _templates(
        tmp_path,
        "steps:\n"
        "  - {id: a, type: demo.note, hosts: store}\n"
        "  - {id: b, type: demo.note, hosts: '{{ inputs.where }}'}\n"
        "  - {id: c, type: demo.note}\n",
        inputs="inputs: {where: {type: string, default: all}}\n",
    )
    plan = load("steps: [{uses: demo.t, hosts: gpu, with: {where: cpu}}]\n", registry)
    assert [node.hosts for node in plan.steps] == ["store", "cpu", "gpu"]


def test_fields_of_a_step(registry):
    plan = load(
        "vars: {n: {type: int, default: 4}}\n"
        "steps:\n"
        "  - id: a\n"
        "    type: demo.note\n"
        "    timeout: 2m\n"
        "    retry: {attempts: '{{ vars.n }}', backoff: exponential, delay: 500ms, max_delay: 3}\n"
        "    on_failure: continue\n"
        "    hosts: gpu\n"
        "  - type: demo.note\n",
        registry,
    )
    first, second = plan.steps
    assert first.timeout == 120.0
    assert first.retry == Retry(4, "exponential", 0.5, 3.0)
    assert [first.retry.wait_before(n) for n in (1, 2, 3, 4, 5, 6)] == [0, 0.5, 1, 2, 3, 3]
    assert first.on_failure is OnFailure.CONTINUE
    assert first.source is not None
    assert (first.source.line, first.source.column) == (7, 9)
    assert second.id == "note"
    assert second.on_failure is OnFailure.RECOVER
    assert second.retry == Retry()


def _templates(tmp_path, steps, *, inputs="", outputs="", name="t"):
    folder = tmp_path / "templates"
    folder.mkdir(exist_ok=True)
    (folder / f"{name}.yaml").write_text(
        f"coldsnap: template/v1\nname: demo.{name}\n{inputs}{steps}{outputs}"
    )
    return demo_registry(tmp_path)


@pytest.mark.parametrize(
    ("inputs", "steps", "outputs", "expected"),
    [
        (
            "",
            "steps: [{id: a, type: demo.note, with: {text: '{{ vars.x }}'}}]\n",
            "",
            (
                'plan.unknown-variable 3:47+14 step "a": a template sees its inputs, not the'
                " plan's vars -> declare an input and give it in the use's with"
            ),
        ),
        (
            "inputs: {text: {type: string, default: a}}\n",
            "steps: [{id: a, type: demo.note, with: {text: '{{ inputs.txt }}'}}]\n",
            "",
            'plan.unknown-input 4:47+18 step "a": unknown input "txt" -> did you mean "text"?',
        ),
        (
            "",
            "steps: [{id: a, type: demo.note, needs: [b]}]\n",
            "",
            'plan.missing-need 3:42+1 step "a" needs "b", which is no step here -> known: a',
        ),
        (
            "",
            "steps: [{id: a, type: demo.not}]\n",
            "",
            (
                'plan.unknown-type 3:23+8 unknown step type "demo.not" -> did you mean "demo.note"?'
                "  See: coldsnap step list"
            ),
        ),
        (
            "",
            "steps: [{id: a, type: demo.probe}]\n",
            "outputs: {free: '{{ steps.a.outputs.fre }}'}\n",
            (
                'plan.unknown-output 4:17+27 outputs of demo.t: step "a" has no output "fre"'
                ' -> did you mean "free"?'
            ),
        ),
        (
            "inputs: {n: {type: int, default: x}}\n",
            "steps: [{id: a, type: demo.note}]\n",
            "",
            'plan.wrong-type 3:34+1 the default of "n" must be an integer, not "x"',
        ),
        (
            "",
            "steps: [{id: a, uses: demo.t}]\n",
            "",
            "plan.template-recursion 3:14+1 the template uses itself: demo.t -> demo.t",
        ),
        (
            "",
            "steps: [{id: a, type: demo.note, with: {tex: x}}]\n",
            "",
            (
                'plan.unknown-field 3:41+3 unknown field "tex" in "with" of step "a"'
                ' -> did you mean "text"?  See: coldsnap step show demo.note'
            ),
        ),
    ],
)
def test_mistakes_in_a_template_are_shown_in_its_file(tmp_path, inputs, steps, outputs, expected):
    registry = _templates(tmp_path, steps, inputs=inputs, outputs=outputs)
    with pytest.raises(ColdSnapError) as caught:
        load("steps: [{uses: demo.t}]\n", registry)
    assert found(caught.value) == [expected]
    assert caught.value.source.file == str(tmp_path / "templates" / "t.yaml")


def test_a_recursion_through_another_template_names_the_chain(tmp_path):
    _templates(tmp_path, "steps: [{uses: demo.u}]\n")
    registry = _templates(tmp_path, "steps: [{uses: demo.t}]\n", name="u")
    with pytest.raises(ColdSnapError) as caught:
        load("steps: [{uses: demo.t}]\n", registry)
    assert caught.value.message == "the template uses itself: demo.t -> demo.u -> demo.t"


def test_a_template_must_be_called_as_its_file(tmp_path):
    registry = _templates(tmp_path, "steps: [{type: demo.note}]\n")
    (tmp_path / "templates" / "t.yaml").rename(tmp_path / "templates" / "other.yaml")
    registry = demo_registry(tmp_path)
    with pytest.raises(ColdSnapError) as caught:
        registry.template("demo.other")
    assert found(caught.value) == [
        (
            'plan.wrong-value 2:7+6 the template calls itself "demo.t", its file "demo.other"'
            " -> write  name: demo.other"
        )
    ]


def test_templates_that_multiply_are_bounded(tmp_path):
    uses = "".join(f"  - {{id: u{i}, uses: demo.%s}}\n" for i in range(20))
    _templates(tmp_path, "steps:\n" + uses % (("b",) * 20), name="a")
    _templates(tmp_path, "steps:\n" + uses % (("c",) * 20), name="b")
    _templates(tmp_path, "steps:\n" + uses % (("d",) * 20), name="c")
    registry = _templates(tmp_path, "steps: [{type: demo.note}]\n", name="d")
    with pytest.raises(ColdSnapError) as caught:
        load("steps: [{uses: demo.a}]\n", registry)
    assert caught.value.code == "plan.too-large"


def test_a_plan_can_be_printed_and_compared(registry):
    text = "steps: [{id: t, uses: demo.twice, with: {text: Hi}, when: true}]\n"
    one, two = load(text, registry), load(text, registry)
    assert one == two
    assert len(repr(one)) < 20_000
    assert one != load(text.replace("Hi", "Ho"), registry)


def test_a_static_field_cannot_depend_on_a_host_through_an_input(registry):
    with pytest.raises(ColdSnapError) as caught:
        load("steps: [{uses: demo.twice, with: {text: a, limit: '{{ host.vars.x }}'}}]\n", registry)
    assert found(caught.value) == [
        (
            'plan.not-static 9:78+20 "timeout" in step "first" is read before any step runs;'
            " an input of the template refers to a host, a unit or a step here"
        )
    ]


def test_the_installed_templates_are_valid():
    """Every template of every installed pack loads and can be shown."""
    from coldsnap.plan.registry import Registry  # noqa: PLC0415 - only here

    registry = Registry.installed()
    assert registry.template_files
    for name in registry.template_files:
        assert registry.template(name).steps
