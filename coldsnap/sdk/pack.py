"""A pack: an installed package that brings step types and templates.

Its entry point in group ``coldsnap.steps`` is a `Pack` named PACK.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from coldsnap.sdk.step import Step


@dataclass(frozen=True)
class Pack:
    name: str
    """Prefix of its step types and templates."""
    steps: Mapping[str, type[Step[Any]]] = field(default_factory=dict)
    """``core.probe`` -> class; an explicit dict, so that there is one visible list."""
    root: Path | None = None
    """Folder of the package: templates are ``root/templates/*.yaml``."""
