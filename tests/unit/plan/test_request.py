from __future__ import annotations

import pytest

from coldsnap.artifact.canonical import digest
from coldsnap.plan.loading import load_text
from coldsnap.plan.variables import Given

PLAN = """\
coldsnap: plan/v1
name: x
description: one
vars: {rev: {type: string, default: abc}}
engine: demo
driver: criu
model: {id: m, path: /m, revision: "{{ vars.rev }}"}
units:
  - id: u0
    hosts: gpu
    devices: [0]
    command: [serve, "{{ model.path }}"]
    env: {A: b}
    mounts: [{source: /data, target: /m}]
    ports: [{inner: 8000, port: 8000}]
store: oci-layout:/a
steps:
  - {id: probe, type: demo.probe}
  - id: ask
    type: demo.ask
    needs: [probe]
    with: {prompt: Hi, folder: /tmp/a}
  - id: c
    uses: demo.capture
    needs: [ask]
    with: {prompt: "{{ steps.ask.outputs.answer }}"}
"""


def request_of(registry, text, flags=()):
    plan = load_text(text, registry, Given(flags, environment={}))
    return plan.request, plan.request_sha256


def test_the_request_says_what_identifies_the_operation(registry):
    request, sha256 = request_of(registry, PLAN)
    assert sha256 == digest(request)
    assert request["format"] == 4
    assert request["kind"] == "coldsnap-operation-request"
    assert request["snapshot_driver"] == {"id": "criu"}
    launch = request["launch"]
    assert launch["engine"] == "demo"
    assert launch["model"] == {"id": "m", "revision": "abc", "source": "path", "path": "/m"}
    assert launch["units"][0] == {
        "id": "u0",
        "index": 0,
        "runtime": "process",
        "image": "",
        "command": ["serve", "/m"],
        "environment": {"A": "b"},
        "cwd": "/",
        "device_slots": 1,
        "network": "private",
        "ports": [{"name": "http", "inner": 8000}],
        "mounts": [{"target": "/m", "read_only": True}],
        "caches": [],
        "shm": 2 << 30,
    }
    assert [step["type"] for step in request["steps"]] == [
        "demo.probe", "demo.ask", "demo.probe", "demo.ask", "demo.ask",
    ]  # fmt: skip
    assert request["steps"][1] == {"type": "demo.ask", "with": {"prompt": "Hi"}}
    assert request["steps"][3]["with"]["prompt"] == {
        "expression": "{{ inputs.prompt }}",
        "inputs": {"prompt": "{{ steps.ask.outputs.answer }}"},
    }
    assert request["steps"][3]["with"]["accept"] == {"prompt": "Hello", "tokens": 24}


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("name: x", "# a note\nname: other"),
        ("description: one", "description: two"),
        ("hosts: gpu", "hosts: cpu"),
        ("devices: [0]", "devices: [3]"),
        ("source: /data", "source: /elsewhere"),
        ("port: 8000}", "port: 9000}"),
        ("port: 8000}", "port: '{{ host.vars.port }}'}"),
        ("store: oci-layout:/a", "store: oci-layout:/b"),
        ("folder: /tmp/a", "folder: /tmp/b"),
        ("type: demo.probe}", "type: demo.probe, timeout: 3, retry: {attempts: 2}, hosts: a}"),
        ("type: demo.probe}", "type: demo.probe, when: true, on_failure: stop}"),
        ("{id: probe, type: demo.probe}", "{type: demo.probe}"),
        ("prompt: Hi", 'prompt: \'{{ "H" + "i" }}\''),
        ("default: abc", "default: abc, description: the commit"),
    ],
)
def test_placement_names_and_comments_do_not_change_the_digest(registry, old, new):
    assert old in PLAN
    assert request_of(registry, PLAN.replace(old, new))[1] == request_of(registry, PLAN)[1]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("default: abc", "default: abd"),
        ("driver: criu", "driver: c580"),
        ("path: /m,", "path: /n,"),
        ("id: u0", "id: u1"),
        ("devices: [0]", "devices: [0, 1]"),
        ("command: [serve", "command: [server"),
        ("A: b", "A: c"),
        ("target: /m", "target: /n"),
        ("inner: 8000", "inner: 8001"),
        ("prompt: Hi", "prompt: Ho"),
        ("outputs.answer }}", "outputs.answer }}!"),
        ('with: {prompt: "{{', 'with: {tokens: 25, prompt: "{{'),
    ],
)
def test_what_is_captured_changes_the_digest(registry, old, new):
    assert old in PLAN
    assert request_of(registry, PLAN.replace(old, new))[1] != request_of(registry, PLAN)[1]


def test_a_variable_counts_by_its_value(registry):
    given = request_of(registry, PLAN, ["rev=def"])
    written = request_of(registry, PLAN.replace("default: abc", "default: def"))
    assert given == written
