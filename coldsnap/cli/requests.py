"""Operations of format 4 requests that the command line carries out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from coldsnap.artifact.receipt import Operation

OPERATIONS: Final[tuple[Operation, ...]] = ("capture", "restore")
