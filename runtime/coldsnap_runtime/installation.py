"""Where this host keeps the parts of the runtime pack that run beside Python."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path

from coldsnap.artifact.errors import ColdSnapError


@dataclass(frozen=True)
class Installation:
    """Absolute paths; all of them must exist."""

    criu: Path
    """The command: a wrapper that starts CRIU through its own loader, or a system CRIU."""
    unit: Path
    """coldsnap-unit"""
    portmap: Path
    """coldsnap-portmap"""
    inside: Path
    """Packages for the engine's PYTHONPATH."""

    @property
    def fill(self) -> Path:
        """coldsnap-fill; a pack without it restores with CRIU alone."""
        return self.portmap.parent / "coldsnap-fill"

    @property
    def guard(self) -> Path:
        """libcoldsnap_guard.so, likewise optional."""
        return self.portmap.parent / "libcoldsnap_guard.so"

    @classmethod
    def find(cls, pack: str | os.PathLike[str]) -> Installation:
        """The parts of the pack in folder `pack`. COLDSNAP_CRIU names another CRIU.

        Raises:
            ColdSnapError: ``runtime.incomplete``.
        """
        root = Path(pack)
        criu = os.environ.get("COLDSNAP_CRIU") or root / "criu" / "criu"
        found = cls(
            criu=Path(criu),
            unit=root / "bin" / "coldsnap-unit",
            portmap=root / "bin" / "coldsnap-portmap",
            inside=root / "inside",
        )
        for path in (found.criu, found.unit, found.portmap, found.inside):
            if not path.exists():
                raise ColdSnapError(
                    "runtime.incomplete",
                    f"{path} is missing",
                    remedy="build and stage the runtime pack again: coldsnap runtime build",
                )
        _offer_python_packages(root)
        return found


def _offer_python_packages(root: Path) -> None:
    """Make pycriu and its protobuf importable; what is installed already wins nothing."""
    if (root / "vendor").is_dir():
        # The interpreter's own protobuf may lend its compiled part, which the pack's cannot use.
        os.environ.setdefault("PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION", "python")
    for folder in (root, root / "vendor"):
        if folder.is_dir() and str(folder) not in sys.path:
            sys.path.insert(0, str(folder))
