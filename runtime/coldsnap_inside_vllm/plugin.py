"""vLLM's general plugin: found by entry point in every process, asked for by ``n580`` alone."""

from __future__ import annotations

import os

DRIVER_VARIABLE = "COLDSNAP_SNAPSHOT"
"""The snapshot driver of the unit, where it changes how the engine starts."""
TEMPLATE_DRIVER = "n580"


def is_template() -> bool:
    """Whether this engine starts from a parked template."""
    return os.environ.get(DRIVER_VARIABLE) == TEMPLATE_DRIVER


def register() -> None:
    """Offer the load format ``coldsnap``; may be called more than once."""
    if is_template():
        from coldsnap_inside_vllm.forking import use_forks  # noqa: PLC0415
        from coldsnap_inside_vllm.payload_loader import register_loader  # noqa: PLC0415

        register_loader()
        use_forks()
