"""The weights of a serving worker, out to a payload pack beside its work."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

from coldsnap_inside_vllm import payload

if TYPE_CHECKING:
    from collections.abc import Sequence

    from coldsnap_inside_vllm.layout import Region


class Exporting(threading.Thread):
    """`result` tells how it ended: ``{bytes, extents}`` or ``{error}``."""

    def __init__(
        self,
        folder: str,
        allocations: Sequence[Region],
        tensors: Sequence[tuple[str, Region]],
        device: int,
    ) -> None:
        super().__init__(name="coldsnap-export", daemon=True)
        self._arguments = (folder, allocations, tensors, device)
        self.result: dict[str, Any] = {"error": "it did not run"}

    def run(self) -> None:
        try:
            Path(self._arguments[0]).mkdir(mode=0o700, exist_ok=True)
            moved = payload.export(*self._arguments)
        except Exception as error:  # noqa: BLE001 - told; the engine serves on
            self.result = {"error": f"{type(error).__name__}: {error}"}
        else:
            self.result = {"bytes": moved.bytes, "extents": moved.extents}
