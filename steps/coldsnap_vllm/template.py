"""vLLM under driver ``n580``: parked before it starts, and started fast.

The template loads vLLM's modules before it parks, unless the unit's ``env:`` says
``COLDSNAP_TEMPLATE: exec``: then its image is a bare interpreter, and vLLM is started by exec.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import PurePosixPath
from typing import Any

from coldsnap.sdk import ColdSnapError, Launch, Model, Unit

DRIVER = "n580"
OPTIONS = ("--load-format", "--worker-cls")
"""Set by `parked`; a unit's command must not."""
MODE = "COLDSNAP_TEMPLATE"
_EXEC, _IMPORTS = "exec", "imports"


def parked(
    launch: Launch, unit: Unit, host_vars: Mapping[str, Any], env: Mapping[str, str]
) -> Launch:
    """The same launch, by way of a template that parks first.

    Raises:
        ColdSnapError: ``vllm.no-interpreter``, ``vllm.template-unfit``.
    """
    mode = unit.env.get(MODE, _IMPORTS)
    if mode not in (_EXEC, _IMPORTS):
        raise ColdSnapError(
            "vllm.template-unfit",
            f"{MODE}={mode} is no way to park a template",
            f"unit {unit.id}",
            remedy=f"write {_IMPORTS} (vLLM's modules are in its image) or {_EXEC} (they are not)",
        )
    interpreter, *rest = _interpreted(launch.argv, unit, host_vars)
    loads = ("--import", "coldsnap_inside_vllm.preload") if mode == _IMPORTS else ()
    return replace(
        launch,
        argv=(
            *(interpreter, "-m", "coldsnap_inside_template", *loads, "--", *rest),
            *("--load-format", "coldsnap"),
            *("--worker-cls", "coldsnap_inside_vllm.planned_worker.PlannedWorker"),
        ),
        env={**launch.env, **env},
        inside=(*launch.inside, "coldsnap_inside_template"),
        template=True,
    )


def template_environment(model: Model, caches: str) -> dict[str, str]:
    return {
        "COLDSNAP_SNAPSHOT": DRIVER,
        "COLDSNAP_MODEL": model.path,
        "CUDA_CACHE_PATH": f"{caches}/cuda",
        "FLASHINFER_WORKSPACE_BASE": f"{caches}/flashinfer",
        # The engine's processes; `spawn` in the unit's env: makes them load everything anew.
        "COLDSNAP_PROCESSES": "fork",
    }


def _interpreted(
    argv: tuple[str, ...], unit: Unit, host_vars: Mapping[str, Any]
) -> tuple[str, ...]:
    """`argv` with the Python interpreter before what it runs."""
    if PurePosixPath(argv[0]).name.startswith("python"):
        return argv
    python = str(host_vars.get("vllm_python") or "")
    if python and argv[0].startswith("/"):
        return (python, *argv)
    raise ColdSnapError(
        "vllm.no-interpreter",
        f"driver {DRIVER} cannot tell which Python interpreter runs {argv[0]}",
        f"unit {unit.id}",
        cause="the template is a process of that interpreter, parked before vLLM starts",
        remedy="begin the unit's command: with the interpreter: [PYTHON, -m, "
        "vllm.entrypoints.openai.api_server, ...]",
    )
