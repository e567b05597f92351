"""CUDA graphs by policy: kept in the image, or dropped before it and captured again.

``preserve-exec`` (the default): the driver's checkpoint carries them; ``recreate-from-plan``: they
go before the dump, and the engine captures the same shapes again once its weights are back, which
makes the image smaller and the restore longer; ``disabled``: vLLM was started without any.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import Any

VARIABLE = "COLDSNAP_GRAPHS"
PRESERVE, RECREATE, DISABLED = "preserve-exec", "recreate-from-plan", "disabled"


def policy() -> str:
    """What the plan wants of this process."""
    return os.environ.get(VARIABLE) or PRESERVE


def drop(model_runner: Any) -> int:
    """Destroy all graphs of the worker; the number of them.

    Raises:
        RuntimeError: this vLLM keeps graphs where they cannot be reached.
    """
    count = 0
    if getattr(model_runner, "speculator", None) is not None:
        raise RuntimeError("graphs of a speculator cannot be captured again")
    for wrappers in wrapper_classes():
        for wrapper in list(wrappers._all_instances):  # noqa: SLF001 - vLLM's own registry
            entries = getattr(wrapper, "concrete_cudagraph_entries", None)
            if entries is None:
                entries = getattr(wrapper, "entries", {})
            count += len(entries)
        wrappers.clear_all_graphs()
    whole = getattr(model_runner, "cudagraph_manager", None)  # of the newer model runner
    if whole is not None:
        count += len(whole.graphs)
        whole.graphs.clear()
        whole._graphs_captured = False  # noqa: SLF001 - else it would dispatch to what is gone
    manager = getattr(model_runner, "encoder_cudagraph_manager", None)
    if manager is not None:
        manager.clear()
        model_runner.encoder_cudagraph_manager = None
    if not count and _has_graphs(model_runner):
        raise RuntimeError("this vLLM does not tell where its CUDA graphs are")
    return count


def recreate(worker: Any) -> int:
    """Capture them again, as at the start; the bytes that they take."""
    with _configured(worker):
        return int(worker.model_runner.capture_model() or 0)


def wrapper_classes() -> Iterator[Any]:
    """Those of vLLM that hold graphs of parts of a model."""
    from vllm.compilation.cuda_graph import CUDAGraphWrapper  # noqa: PLC0415

    yield CUDAGraphWrapper
    with contextlib.suppress(ImportError):
        from vllm.compilation.breakable_cudagraph import (  # noqa: PLC0415
            BreakableCUDAGraphWrapper,
        )

        yield BreakableCUDAGraphWrapper


def _has_graphs(model_runner: Any) -> bool:
    mode = getattr(model_runner.compilation_config, "cudagraph_mode", None)
    return bool(mode) and getattr(mode, "name", "") != "NONE"


@contextlib.contextmanager
def _configured(worker: Any) -> Iterator[None]:
    """Layers of vLLM look their configuration up while they are traced or captured."""
    from vllm.config import set_current_vllm_config  # noqa: PLC0415

    with set_current_vllm_config(worker.vllm_config):
        yield
