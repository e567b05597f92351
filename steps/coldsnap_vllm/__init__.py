"""The vLLM pack: the engine as data, and templates to capture and restore it."""

from __future__ import annotations

from pathlib import Path

from coldsnap.sdk import Pack

PACK = Pack("vllm", {}, Path(__file__).parent)
