"""vLLM's general plugin: found by entry point in every process, asked for by ``n580`` alone."""

from __future__ import annotations

import os
import sys

DRIVER_VARIABLE = "COLDSNAP_SNAPSHOT"
"""The snapshot driver of the unit, where it changes how the engine starts."""
TEMPLATE_DRIVER = "n580"
_PRELOAD = "coldsnap_inside_vllm.preload"


def is_template() -> bool:
    """Whether this engine starts from a parked template."""
    return os.environ.get(DRIVER_VARIABLE) == TEMPLATE_DRIVER


def register() -> None:
    """Offer the load format ``coldsnap``; may be called more than once.

    Raises:
        RuntimeError: a template's engine is a vLLM that this is not made for; says which part.
    """
    if is_template():
        if _PRELOAD in sys.modules:  # else the modules to look at are yet to be loaded
            _require_known_vllm()
        from coldsnap_inside_vllm.forking import use_forks  # noqa: PLC0415
        from coldsnap_inside_vllm.payload_loader import register_loader  # noqa: PLC0415

        register_loader()
        use_forks()


def _require_known_vllm() -> None:
    import vllm  # noqa: PLC0415
    from vllm.platforms import current_platform  # noqa: PLC0415

    from coldsnap_inside_vllm import contract  # noqa: PLC0415

    platform = contract.CPU if current_platform.is_cpu() else contract.CUDA
    contract.require(platform=platform, version=str(vllm.__version__))
