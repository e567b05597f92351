"""vLLM, told as data: how it starts, holds still, serves on and is asked.

On CPU (driver ``criu``) the weights stay in the process image and KV is dropped by the worker
extension of coldsnap_inside_vllm. On a GPU (``c580``, ``n610``) vLLM's sleep mode discards both
before the dump. With ``n580`` the command parks before vLLM starts, see `coldsnap_vllm.template`.
The control port, on loopback inside the unit, carries the calls.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any

from coldsnap.sdk import Acceptance, ColdSnapError, HttpCall, Launch, Model, Unit
from coldsnap_vllm.graphs import graph_options, graph_policy
from coldsnap_vllm.template import DRIVER, OPTIONS, parked, template_environment

CONTROL_PORT = 8901
"""Inside the unit; it is never published."""
CACHES = "/var/cache/coldsnap/runtime"
"""Inside the unit: compiler caches, which the processes map and the capsule keeps."""

_SHARE_OPTIONS = ("--gpu-memory-utilization", "--gpu_memory_utilization")
_OWN_OPTIONS = ("--worker-extension-cls", "--middleware", "--host", "--port")
_ENVIRONMENT = {
    "COLDSNAP_CONTROL_PORT": str(CONTROL_PORT),
    "DO_NOT_TRACK": "1",
    "HF_HUB_DISABLE_XET": "1",
    "HF_HUB_OFFLINE": "1",
    # Compiled once for a single small kernel, the headers would only swell the capsule by 150 MB.
    "TORCHINDUCTOR_CPP_CACHE_PRECOMPILE_HEADERS": "0",
    "TORCHINDUCTOR_CACHE_DIR": f"{CACHES}/torchinductor",
    "TRITON_CACHE_DIR": f"{CACHES}/triton",
    "VLLM_CACHE_ROOT": f"{CACHES}/vllm",
    # The address that vLLM's processes meet at must be there after a restore too.
    "VLLM_HOST_IP": "127.0.0.1",
    "VLLM_NO_USAGE_STATS": "1",
}
_GPU_ENVIRONMENT = {
    # NCCL's watchdog would count the time in the image as a hang.
    "TORCH_NCCL_ENABLE_MONITORING": "0",
    # What NCCL cannot give back, or registers for good: see _UNFIT.
    "NCCL_NVLS_ENABLE": "0",
    "NCCL_CUMEM_HOST_ENABLE": "0",
    "NCCL_GRAPH_REGISTER": "0",
}
_UNFIT = {
    "PYTORCH_CUDA_ALLOC_CONF": (
        "expandable_segments:true",
        "vLLM's sleep frees nothing of expandable segments",
    ),
    "PYTORCH_ALLOC_CONF": (
        "expandable_segments:true",
        "vLLM's sleep frees nothing of expandable segments",
    ),
    "NCCL_NVLS_ENABLE": ("1", "the driver cannot checkpoint NVLink multicast memory"),
    "NCCL_CUMEM_HOST_ENABLE": ("1", "ranks dead-lock in a restore (nccl#2350)"),
    "NCCL_GRAPH_REGISTER": ("1", "replays of CUDA graphs hang on buffers registered before"),
    "TORCH_NCCL_ENABLE_MONITORING": ("1", "the watchdog counts the time in the image as a hang"),
    "HF_HUB_DISABLE_XET": ("0", "connections of the Hub's Xet client cannot be restored"),
}
"""Variable -> what its value must not hold, and why."""
_CUDA_DRIVERS = frozenset({"c580", "n610"})
_DRAIN_SECONDS = 60
_PHASES = (
    ("imports", r"Initializing a V1 LLM engine|Initializing an LLM engine"),
    ("worker-start", r"Starting to load model"),
    ("weights", r"Loading weights took (?P<seconds>[\d.]+) s"),
    ("compile", r"torch\.compile (?:took|takes) (?P<seconds>[\d.]+) s in total"),
    ("profiling", r"profiling/warmup run took (?P<seconds>[\d.]+) s"),
    ("graphs", r"Graph capturing finished in (?P<seconds>[\d.]+) sec"),
    ("engine-init", r"init engine .* took (?P<seconds>[\d.]+) s"),
)
"""What vLLM says when it is done with it; the last one holds those from compile on."""


class VllmEngine:
    """Implements `coldsnap.sdk.Engine`."""

    name = "vllm"
    drivers = ("criu", "c580", "n580", "n610")

    def launch(self, unit: Unit, model: Model, host_vars: Mapping[str, Any]) -> Launch:
        """The unit's command, or vLLM's API server from the host variable ``vllm_python``.

        Raises:
            ColdSnapError: ``vllm.no-interpreter``, ``vllm.option-owned``,
                ``vllm.environment-unfit``, ``vllm.graph-policy``.
        """
        command = unit.command or _default_command(unit, model, host_vars)
        driver = str(host_vars.get("snapshot_driver") or "")
        own = (*_OWN_OPTIONS, *(OPTIONS if driver == DRIVER else ()))
        for option in own:
            if any(word == option or word.startswith(f"{option}=") for word in command):
                raise ColdSnapError(
                    "vllm.option-owned",
                    f"{option} is set by ColdSnap",
                    f"unit {unit.id}",
                    remedy=f"take {option} out of the unit's command; ports: says where it serves",
                )
        served = unit.ports[0]
        host = "127.0.0.1" if unit.network == "private" else served.host
        on_gpu = driver in _CUDA_DRIVERS or (driver == DRIVER and bool(unit.devices))
        if on_gpu:
            _lint_environment(unit)
        sleep = ("--enable-sleep-mode",) if on_gpu and "--enable-sleep-mode" not in command else ()
        graphs = graph_policy(unit, command) if driver in _CUDA_DRIVERS else ""
        launch = Launch(
            phases=_PHASES,
            argv=(
                *command,
                *("--host", host, "--port", str(served.inner)),
                *("--middleware", "coldsnap_inside_vllm.middleware.ColdSnapGate"),
                *("--worker-extension-cls", "coldsnap_inside_vllm.worker.ColdSnapWorker"),
                *sleep,
                *graph_options(graphs, command),
            ),
            env=_ENVIRONMENT | (_GPU_ENVIRONMENT if on_gpu else {}),
            inside=("coldsnap_inside_vllm",),
            caches=(CACHES,),
            graphs=graphs,
            device_share=_device_share(command) if unit.devices else 0.0,
        )
        if driver != DRIVER:
            return launch
        return parked(launch, unit, host_vars, template_environment(model, CACHES))

    def ready(self, unit: Unit) -> HttpCall:
        return HttpCall("GET", "/health", timeout=5.0, port=unit.ports[0].name)

    def quiesce(self) -> tuple[HttpCall, ...]:
        body = {"drain_seconds": _DRAIN_SECONDS, "dir": "{dir}", "export": "{dir}"}
        return (_control("/quiesce", body, timeout=600.0),)

    def resume(self) -> tuple[HttpCall, ...]:
        return (_take_back(),)

    def hydrate(self) -> tuple[HttpCall, ...]:
        return (_take_back(),)

    def export(self) -> tuple[HttpCall, ...]:
        return (_control("/export", {"dir": "{dir}/materialized"}, timeout=1800.0),)

    def sleep(self) -> tuple[HttpCall, ...]:
        body = {"drain_seconds": _DRAIN_SECONDS, "level": 1}
        return (_control("/quiesce", body, timeout=600.0),)

    def wake(self) -> tuple[HttpCall, ...]:
        return (_take_back(),)

    def acceptance(self, model: Model) -> Acceptance:
        return Acceptance(body={"model": model.id, "ignore_eos": True})


def _lint_environment(unit: Unit) -> None:
    """Refuse what is known to break a restore, before the engine is started with it."""
    for name, (unfit, reason) in _UNFIT.items():
        value = unit.env.get(name, "")
        if unfit in value.replace(" ", "").lower():
            raise ColdSnapError(
                "vllm.environment-unfit",
                f"{name}={value} does not go with a snapshot of CUDA state",
                f"unit {unit.id}",
                cause=reason,
                remedy=f"take {name} out of the unit's env:, or change it",
            )


def _device_share(command: tuple[str, ...]) -> float:
    """What vLLM is told to take of a device, which it demands to be free; 0 if that is not told.

    Its default differs from version to version.
    """
    for word, following in zip(command, (*command[1:], ""), strict=True):
        name, _, value = word.partition("=")
        if name in _SHARE_OPTIONS:
            with contextlib.suppress(ValueError):
                share = float(value or following)
                return share if 0 < share <= 1 else 0.0
    return 0.0


def _take_back() -> HttpCall:
    body = {"payload": "{payload}", "index": "{index}", "provider": "{provider}"}
    return _control("/resume", body, timeout=600.0)


def _control(path: str, body: Any, timeout: float) -> HttpCall:
    return HttpCall("POST", path, body, timeout=timeout, port=str(CONTROL_PORT))


def _default_command(unit: Unit, model: Model, host_vars: Mapping[str, Any]) -> tuple[str, ...]:
    python = host_vars.get("vllm_python")
    if not python or not model.path:
        raise ColdSnapError(
            "vllm.no-interpreter",
            "nothing says how vLLM is started",
            f"unit {unit.id}",
            remedy="give the unit a command:, or the host variable vllm_python and model.path",
        )
    return (
        *(str(python), "-m", "vllm.entrypoints.openai.api_server"),
        *("--model", model.path, "--served-model-name", model.id),
    )
