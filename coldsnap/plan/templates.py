"""Templates: steps that a pack brings under one name, expanded where a plan says ``uses:``.

A template is the file ``<pack root>/templates/<verb>.yaml``; its name is ``<pack>.<verb>``::

    # yaml-language-server: $schema=.../schemas/template.schema.json
    coldsnap: template/v1
    name: reference.capture          # must be <pack>.<file name without .yaml>
    description: Launch, warm up, capture and accept one service
    inputs:                          # what a use may give in `with`
      prompt: {type: string, description: what is asked}      # no default: required
      tokens: {type: int, default: 24}
      accept: {type: map, default: null}                      # optional: null if absent
      level:  {type: string, default: fast, enum: [fast, full]}
    steps:                           # the same form as in a plan; `uses` of other templates too
      - {id: probe, type: core.probe}
      - {id: launch, type: core.launch, needs: [probe]}
      - id: accept
        type: core.accept
        needs: [launch]
        with: {prompt: "{{ inputs.prompt }}", tokens: "{{ inputs.tokens }}"}
    outputs:                         # optional: what `steps.<use id>.outputs.<name>` gives outside
      answer: "{{ steps.accept.outputs.answer }}"

Input types: string, int, float, bool, list, map, path (as in a plan's ``vars``). ``default`` makes
an input optional and is a constant: it holds no expression.

A use in a plan::

    - id: capture                    # default: the template's verb
      uses: reference.capture
      needs: [setup]
      hosts: gpu
      when: "{{ vars.capture }}"
      with: {prompt: "{{ vars.prompt }}"}

expands to the steps ``capture.probe``, ``capture.launch``, ``capture.accept``:

* The template's first steps (those with no ``needs`` in it) inherit the use's ``needs``.
* ``needs: [capture]`` elsewhere means all its last steps (those that no step in it needs).
* The use's ``hosts`` holds for steps of the template that name none; its ``when`` holds for all
  of them, together with their own. ``timeout``, ``retry`` and ``on_failure`` belong to steps, so a
  use takes none; a template may pass them through from inputs (``timeout: "{{ inputs.limit }}"``).
* Expressions in a template see ``inputs.X``, ``steps.<local id>.outputs.Y``, ``model``, ``plan``,
  ``host`` and ``unit``, but not the plan's ``vars``: what varies is an input.
* Values of inputs are read in the scope of the use, so they may refer to outputs of steps that
  the use needs.
* A template may use templates; one that reaches itself is the error ``plan.template-recursion``.

What is read at load time and so may refer to ``vars``, ``inputs``, ``model`` and ``plan`` only:
``hosts``, ``timeout``, ``retry``. What is read per host and unit: ``with`` and ``when``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator
from pydantic import ValidationError

from coldsnap.plan.document import Document, read_document
from coldsnap.plan.language import VariableDoc
from coldsnap.plan.problems import Problems, shown
from coldsnap.plan.report import Checked
from coldsnap.plan.validation import check_schema, check_typed
from coldsnap.plan.variables import check_declaration


@dataclass(frozen=True)
class Template:
    """A template as its file has it; `coldsnap.plan.expansion` expands it."""

    name: str
    description: str
    inputs: Mapping[str, VariableDoc]
    steps: tuple[Mapping[str, Any], ...]
    """As written, checked against the schema."""
    outputs: Mapping[str, Any]
    document: Document


def read_template(path: Path, name: str, validator: Draft202012Validator) -> Template:
    """Read and check one template's file; its steps' expressions are checked when it is used.

    Args:
        path: the file.
        name: what the file must say it is.
        validator: of the composed template schema.

    Raises:
        ColdSnapError: ``plan.*`` with the place in the file; further errors in its `more`.
    """
    document = read_document(path)
    data, problems, checked = document.data, Problems(), Checked(document, what="the template")
    check_schema(validator, data, checked, problems)
    problems.raise_if_any()
    if data["name"] != name:
        problems.add(
            "plan.wrong-value",
            f"the template calls itself {shown(data['name'])}, its file {shown(name)}",
            document.source(("name",)),
            remedy=f"write  name: {name}",
        )
    inputs = _inputs(data.get("inputs", {}), document, problems)
    problems.raise_if_any()
    return Template(
        name=name,
        description=data.get("description", ""),
        inputs=inputs,
        steps=tuple(data["steps"]),
        outputs=data.get("outputs", {}),
        document=document,
    )


def _inputs(raw: Mapping[str, Any], document: Document, problems: Problems) -> dict[str, Any]:
    inputs: dict[str, VariableDoc] = {}
    for name, value in raw.items():
        try:
            inputs[name] = VariableDoc.model_validate(value)
        except ValidationError as error:
            check_typed(error, Checked(document, ("inputs", name), "the template"), problems)
            continue
        check_declaration(name, inputs[name], document, ("inputs", name), problems)
    return inputs
