"""Hydration beside the wake.

The library's session opens while memory is mapped, and the weights are on their way while the KV
cache is mapped and zeroed.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from coldsnap.artifact.errors import ColdSnapError
from coldsnap.artifact.pack import open_pack
from coldsnap_inside_vllm.payload import NoLibraryError, opened_library, places_of
from coldsnap_inside_vllm.spans import Spans
from coldsnap_runtime.hydrate import Session, hydrate_pack
from coldsnap_runtime.hydrate.structures import MARKS, Place

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from coldsnap.artifact.pack import PackReader
    from coldsnap_inside_vllm.layout import Region
    from coldsnap_runtime.hydrate.report import Report

_PATIENCE = 600.0
"""Seconds for the memory to be mapped."""


class Loading(threading.Thread):
    """Fills the weights' memory out of a pack; `result` tells how it ended."""

    def __init__(self, pack: str, index: str, device: int) -> None:
        super().__init__(name="coldsnap-load", daemon=True)
        self._pack, self._index, self._device = pack, index, device
        self._mapped = threading.Event()
        self._allocations: Sequence[Region] | None = None
        self._spans = Spans()
        self._result: dict[str, Any] = {}

    def memory_is_mapped(self, allocations: Sequence[Region]) -> None:
        self._allocations = allocations
        self._mapped.set()

    def give_up(self) -> None:
        """End it before any byte was written; nothing to do once it is at work."""
        self._mapped.set()
        self.join()

    def result(self) -> dict[str, Any]:
        """``{bytes, seconds, spans}``, or ``{error, code}`` where the payload is of no use."""
        self.join()
        return {**self._result, "spans": self._spans.found}

    def run(self) -> None:
        try:
            self._result = self._load()
        except ColdSnapError as error:
            self._result = {"error": error.message, "code": error.code}
        except NoLibraryError as error:
            self._result = {"error": str(error), "code": "payload.no-library"}
        except Exception as error:  # noqa: BLE001 - told; the caller takes another provider
            reason = f"{type(error).__name__}: {error}"
            self._result = {"error": reason, "code": "payload.not-loaded"}

    def _load(self) -> dict[str, Any]:
        with self._spans.span("library-open"):
            library = opened_library()
        session: Session | None = None
        try:
            # First: it needs no pack, and the driver is not busy with mapping memory yet.
            with self._spans.span("session-open") as attributes:
                session = Session(library, Place.CUDA, device=self._device)
                attributes.update(named_seconds(session.opening()))
            with self._spans.span("index-read"):
                reader = open_pack(self._pack, self._index)
            with reader:
                return self._with(session, reader)
        finally:
            with self._spans.span("session-close"):
                if session is not None:
                    session.close()
                library.unload()

    def _with(self, session: Session, reader: PackReader) -> dict[str, Any]:
        with self._spans.span("memory-awaited"):
            if not self._mapped.wait(_PATIENCE) or self._allocations is None:
                return {"error": "its memory was not mapped", "code": "payload.not-loaded"}
        layout = reader.index.attributes.get("layout")
        places = places_of(reader.index.extents, self._allocations, layout)
        residual = sum(e.length for e in reader.index.extents if e.id.startswith("residual/"))
        with self._spans.span("payload") as attributes:
            report = hydrate_pack(session, reader, places)
            attributes.update(bytes=report.bytes, residual_bytes=residual, **measured(report))
        return {"bytes": report.bytes, "seconds": round(report.seconds, 4)}


def measured(report: Report) -> dict[str, float | int | str]:
    """For a span: seconds of the stages are summed over the threads, the others by the clock."""
    clock = dict(report.clock)
    eighths = [clock.pop(f"eighth_{i}", 0.0) for i in range(1, MARKS + 1)]
    shown = {"first": 0.0, "half": eighths[3], "last": eighths[-1], **clock} if clock else {}
    told = {"engine_reason": report.engine_reason} if report.engine_reason else {}
    return {
        **named_seconds(report.stages),
        **named_seconds(shown),
        "eighths": " ".join(f"{seconds:.4f}" for seconds in eighths),
        "threads": report.threads,
        "direct_bytes": report.direct_bytes,
        "device_digest_bytes": report.device_digest_bytes,
        "engine": report.engine,
        **told,
    }


def named_seconds(times: Mapping[str, float]) -> dict[str, float]:
    return {f"{name}_seconds": round(value, 5) for name, value in times.items()}
