"""Where one generation of a unit keeps what, on the host."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True)
class GenerationPaths:
    folder: Path

    @property
    def record(self) -> Path:
        return self.folder / "unit.json"

    @property
    def control(self) -> Path:
        """Inside the unit: /run/coldsnap/unit."""
        return self.folder / "control"

    @property
    def engine_log(self) -> Path:
        return self.control / "engine.log"

    @property
    def tmp(self) -> Path:
        return self.folder / "tmp"

    @property
    def caches(self) -> Path:
        return self.folder / "caches"

    @property
    def unit_program(self) -> Path:
        """This generation's own copy of coldsnap-unit: its processes have it mapped."""
        return self.folder / "coldsnap-unit"

    @property
    def work(self) -> Path:
        """CRIU's logs, the init's report."""
        return self.folder / "work"
