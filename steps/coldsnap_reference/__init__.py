"""The reference pack: a small engine that runs anywhere, as data, and templates for it."""

from __future__ import annotations

from pathlib import Path

from coldsnap.sdk import Pack

PACK = Pack("reference", {}, Path(__file__).parent)
