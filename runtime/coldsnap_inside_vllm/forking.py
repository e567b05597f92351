"""Processes of an engine that starts from a template are forks: they have its modules already.

vLLM's command line asks for fresh processes, because a fork of a process that used CUDA cannot
use it, nor OpenMP's threads. A template has used neither; where something did since, vLLM's own
way is taken.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import sys
from typing import Any

from coldsnap_inside_template.imports import close_nvml

VARIABLE = "COLDSNAP_PROCESSES"
"""``fork`` or ``spawn``."""
_NAME = "get_mp_context"
_CUDA_DEVICE = "/dev/nvidia-uvm"
"""Open in every process with a CUDA context; NVML may have it open too, so that is closed first."""


def use_forks() -> None:
    """May be called more than once; changes nothing where vLLM has no such function."""
    from vllm.utils import system_utils  # noqa: PLC0415

    original = getattr(system_utils, _NAME, None)
    if os.environ.get(VARIABLE) != "fork" or original is None or hasattr(original, "coldsnap"):
        return

    def context() -> Any:
        if uses_cuda():
            logging.getLogger("vllm.coldsnap").warning("CUDA is in use: processes are spawned")
            return original()
        return multiprocessing.get_context("fork")

    context.coldsnap = True  # type: ignore[attr-defined]
    # Other modules have it under the same name since they were imported.
    for name, module in list(sys.modules.items()):
        if name.startswith("vllm.") and module.__dict__.get(_NAME) is original:
            setattr(module, _NAME, context)


def uses_cuda() -> bool:
    """Whether this process has a CUDA context, which a fork of it could not use."""
    if not _holds_device():
        return False
    close_nvml()
    return _holds_device()


def _holds_device() -> bool:
    for name in os.listdir("/proc/self/fd"):
        try:
            if os.readlink(f"/proc/self/fd/{name}").startswith(_CUDA_DEVICE):
                return True
        except OSError:
            continue
    return False
