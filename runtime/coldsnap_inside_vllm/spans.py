"""How long parts of a control call took, for its answer: the controller shows them below the call.

Times are the host's CLOCK_BOOTTIME, the clock of the controller; a name may be given once per
answer.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from coldsnap_inside_vllm.phases import now


class Spans:
    def __init__(self) -> None:
        self.found: list[dict[str, Any]] = []

    @contextlib.contextmanager
    def span(self, name: str, parent: str = "") -> Iterator[dict[str, Any]]:
        """Yields its attributes, to be filled in. A part that fails is told too."""
        attributes: dict[str, Any] = {}
        begin = now()
        try:
            yield attributes
        finally:
            item: dict[str, Any] = {"name": name, "start": begin, "seconds": now() - begin}
            self.found.append(
                item | {"attributes": attributes} | ({"parent": parent} if parent else {})
            )
