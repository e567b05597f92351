"""What of vLLM driver ``n580`` builds on, as a list, and whether this vLLM is so.

vLLM promises none of it. A version without one of these is refused by name when its engine is
launched, before anything is captured from it; also by a look at its source, without importing it.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

ANY, CPU, CUDA = "any", "cpu", "cuda"


@dataclass(frozen=True)
class Hook:
    """A function, class or attribute of vLLM."""

    module: str
    name: str
    """Dotted below the module."""
    parameters: tuple[str, ...] = ()
    """Names that it must accept, in the order in which they are given by position."""
    platform: str = ANY
    used: str = ""
    """What for."""


_WORKER = (
    ("init_device", ("self",), "its time is told"),
    ("load_model", ("self",), "its time is told"),
    ("determine_available_memory", ("self",), "not called where a start-up plan fits"),
    ("initialize_from_config", ("self", "kv_cache_config"), "its time is told"),
    ("compile_or_warm_up_model", ("self",), "its time is told"),
)
_LOADERS = "vllm.model_executor.model_loader"
HOOKS = (
    Hook("vllm.utils.system_utils", "get_mp_context", (), ANY, "engine processes are forks"),
    Hook(_LOADERS, "register_model_loader", ("load_format",), ANY, "the load format coldsnap"),
    Hook(
        f"{_LOADERS}.default_loader",
        "DefaultModelLoader.__init__",
        ("self", "load_config"),
        ANY,
        "read as usual where there is no payload pack",
    ),
    Hook(
        f"{_LOADERS}.default_loader",
        "DefaultModelLoader.load_weights",
        ("self", "model", "model_config"),
        ANY,
        "filled out of the payload pack instead",
    ),
    Hook("vllm.distributed.parallel_state", "get_world_group", (), ANY, "one worker or several"),
    Hook("vllm.config", "VllmConfig.compute_hash", ("self",), ANY, "identity of a start-up plan"),
    Hook("vllm.logger", "init_logger", ("name",), ANY, "what it does is in the engine's log"),
    Hook(
        "vllm.v1.worker.worker_base",
        "WorkerBase.__init__",
        ("self", "vllm_config", "local_rank", "rank"),
        ANY,
        "rank of a worker in a start-up plan",
    ),
    Hook("vllm.v1.engine.async_llm", "AsyncLLM.collective_rpc", ("self", "method"), ANY, "control"),
    Hook("vllm.v1.engine.async_llm", "AsyncLLM.reset_prefix_cache", ("self",), ANY, "control"),
    *(
        Hook("vllm.v1.worker.cpu_worker", f"CPUWorker.{name}", needs, CPU, used)
        for name, needs, used in _WORKER
        if name not in ("load_model", "initialize_from_config")  # those of its base class
    ),
    *(
        Hook("vllm.v1.worker.gpu_worker", f"Worker.{name}", needs, CUDA, used)
        for name, needs, used in _WORKER
    ),
    Hook(
        "vllm.v1.worker.utils",
        "request_memory",
        ("init_snapshot", "cache_config"),
        CUDA,
        "bytes that a start-up plan may give",
    ),
    Hook("vllm.utils.mem_utils", "MemorySnapshot.total_memory", (), CUDA, "guard of a plan"),
    Hook("vllm.utils.mem_utils", "MemorySnapshot.free_memory", (), CUDA, "guard of a plan"),
    Hook(
        "vllm.platforms.interface", "DeviceCapability.as_version_str", ("self",), CUDA, "of a plan"
    ),
)


def unfit(hooks: Sequence[Hook] = HOOKS, *, platform: str) -> list[str]:
    """One line for each hook that this vLLM does not have, or has otherwise."""
    return [reason for hook in of_platform(hooks, platform) if (reason := _reason(hook))]


def require(*, platform: str, version: str) -> None:
    """Raises RuntimeError, which names the first that is missing and how many are."""
    found = unfit(platform=platform)
    if found:
        more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
        raise RuntimeError(f"driver n580 does not know vLLM {version}: {found[0]}{more}")


def of_platform(hooks: Sequence[Hook], platform: str) -> Iterator[Hook]:
    return (hook for hook in hooks if hook.platform in (ANY, platform))


def misfit(hook: Hook, positional: Sequence[str], *, takes_more: bool) -> str:
    """Why a function with these parameters cannot be called as we do; empty if it can."""
    needed = hook.parameters
    if tuple(positional[: len(needed)]) == needed or (takes_more and not positional[1:]):
        return ""
    return f"{hook.module}.{hook.name}({', '.join(positional)}) does not take {', '.join(needed)}"


def _reason(hook: Hook) -> str:
    missing = f"it has no {hook.module}.{hook.name}"
    try:
        found: Any = importlib.import_module(hook.module)
    except ImportError as error:
        return f"{missing} ({error})"
    for part in hook.name.split("."):
        if not hasattr(found, part):
            # Fields of a dataclass without a default are annotations only.
            if part in getattr(found, "__annotations__", {}):
                return ""
            return missing
        found = getattr(found, part)
    return _signature(hook, found) if hook.parameters else ""


def _signature(hook: Hook, function: Callable[..., Any]) -> str:
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # of a function in C
        return ""
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    positional = [item.name for item in parameters if item.kind in kinds]
    more = any(item.kind is inspect.Parameter.VAR_POSITIONAL for item in parameters)
    return misfit(hook, positional, takes_more=more)


def main() -> None:
    """``python -m coldsnap_inside_vllm.contract``: one line a hook; status 1 if one is unfit."""
    from vllm.platforms import current_platform  # noqa: PLC0415

    platform = CPU if current_platform.is_cpu() else CUDA
    found = unfit(platform=platform)
    for hook in of_platform(HOOKS, platform):
        print(f"{hook.module}.{hook.name}: {hook.used}")
    raise SystemExit("\n".join(found) if found else 0)


if __name__ == "__main__":
    main()
