"""What goes wrong on purpose: plans with mistakes, an engine with a fault, hosts that cannot."""

from __future__ import annotations

import json
import sys
from pathlib import Path

HEAD = "coldsnap: plan/v1\nname: x\nengine: reference\nmodel: {id: m, path: /m}\n"
STAGE = "steps:\n  - {id: stage, type: core.stage}\n"


def _steps(*steps: str, head: str = HEAD) -> str:
    return head + "steps:\n" + "".join(f"  - {{{step}}}\n" for step in steps)


_ONE_UNIT = HEAD + "units: [{id: u0}]\n"
_BOMB = "".join(
    f"  {chr(98 + n)}: &{chr(98 + n)} [{', '.join([f'*{chr(97 + n)}'] * 9)}]\n" for n in range(9)
)
PLANS: dict[str, tuple[str, str | bytes]] = {
    "unknown field": ("plan.unknown-field", _steps("id: a, type: core.stage, timout: 3s")),
    "unknown step type": ("plan.unknown-type", _steps("id: a, type: core.stge")),
    "unknown need": ("plan.missing-need", _steps("id: a, type: core.stage, needs: [b]")),
    "unknown variable": ("plan.unknown-variable", HEAD + STAGE),
    "duplicate key": ("plan.duplicate-key", HEAD + "name: y\n" + STAGE),
    "duplicate id": (
        "plan.duplicate-id",
        _steps("id: a, type: core.stage", "id: a, type: core.probe"),
    ),
    "cycle": (
        "plan.cycle",
        _steps("id: a, type: core.stage, needs: [b]", "id: b, type: core.stage, needs: [a]"),
    ),
    "missing need": (
        "plan.missing-need",
        _steps(
            "id: a, type: core.stage",
            'id: b, type: core.collect, with: {keep: "{{ steps.a.outputs.pack }}"}',
            head=_ONE_UNIT,
        ),
    ),
    "wrong type": (
        "plan.wrong-type",
        _steps("id: a, type: core.collect, with: {keep: [1]}", head=_ONE_UNIT),
    ),
    "ten megabytes": ("plan.too-large", HEAD + "# " + "x" * (10 << 20) + "\n" + STAGE),
    "yaml bomb": (
        "plan.yaml-bomb",
        HEAD + "vars:\n  a: &a [x, x, x, x, x, x, x, x, x]\n" + _BOMB + STAGE,
    ),
    "not utf-8": (
        "plan.not-utf8",
        (HEAD + "description: ").encode() + b"\xff\xfe\n" + STAGE.encode(),
    ),
}
"""Name -> (code, document)."""

_ENGINE = """
import os, sys
from coldsnap_reference_engine.lifecycle import Lifecycle
fault = {fault!r}
if fault == "dies":
    Lifecycle.quiesce = lambda *_: os._exit(9)
if fault == "deaf":
    from coldsnap_reference_engine.control import ControlHandler
    from coldsnap_reference_engine.serving import ServingHandler
    for handler in (ControlHandler, ServingHandler):
        handler.get_health = lambda self: self.send_json({{}}, 503)
from coldsnap_reference_engine.__main__ import main
argv = ["serve", "--model", {model!r}, "--served-model-name", "reference", "--tune-seconds", "0"]
sys.exit(main(argv + sys.argv[1:]))
"""


def engine_plan(model: Path, fault: str = "", steps: str = "") -> str:
    """A plan of one unit whose engine has a fault; variables `unit`, `port`, `name`."""
    capture = (
        '{uses: reference.capture, with: {name: "{{ vars.name }}", prompts: [Once], tokens: 4}}'
    )
    code = _ENGINE.format(fault=fault, model=str(model))
    return f"""
coldsnap: plan/v1
name: faulty
vars:
  unit: {{type: string, default: engine}}
  port: {{type: int}}
  name: {{type: string, default: faulty}}
engine: reference
model: {{id: reference, path: {model}}}
units:
  - id: "{{{{ vars.unit }}}}"
    command: {json.dumps([sys.executable, "-c", code])}
    ports: [{{inner: 8000, port: "{{{{ vars.port }}}}"}}]
steps:
  - {steps or capture}
"""


def restore_plan(model: Path, artifact: str = "{{ vars.name }}") -> str:
    text = engine_plan(
        model, steps=f'{{uses: reference.restore, with: {{artifact: "{artifact}"}}}}'
    )
    before, _, after = text.partition("    command:")
    return before + after.partition("\n")[2]
