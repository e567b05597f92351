"""JSON Schemas of the documents that ColdSnap reads and writes, from the types that decode them.

Generated into ``schemas/`` for editors and other programs; never read at run time.
"""

from __future__ import annotations

from typing import Any

from pydantic import TypeAdapter

from coldsnap.artifact.capabilities import Capabilities
from coldsnap.artifact.decode import Record
from coldsnap.artifact.descriptor import Descriptor
from coldsnap.artifact.events import TimingEvent
from coldsnap.artifact.pack_index import PackIndex
from coldsnap.artifact.profile import HostProfile
from coldsnap.artifact.receipt import Receipt
from coldsnap.artifact.request import Request
from coldsnap.artifact.timing import Timing
from coldsnap.artifact.tree import Listing
from coldsnap.artifact.validation import ValidationRecord, ValidationResult

DIALECT = "https://json-schema.org/draft/2020-12/schema"

DOCUMENTS: dict[str, tuple[type[Record], str]] = {
    "artifact.schema.json": (Descriptor, "Artifact descriptor, format 9"),
    "capabilities.schema.json": (Capabilities, "Capability document, format 1"),
    "host-profile.schema.json": (HostProfile, "Host feature profile, format 1"),
    "pack-index.schema.json": (PackIndex, "Payload pack index, format 1"),
    "payload-validation.schema.json": (ValidationRecord, "Payload validation record, format 1"),
    "payload-validation-result.schema.json": (ValidationResult, "Payload validation, format 1"),
    "receipt.schema.json": (Receipt, "Operation receipt, format 2"),
    "request.schema.json": (Request, "Operation request, format 4"),
    "runtime-pack.schema.json": (Listing, "Listing of a runtime pack, format 1"),
    "timing.schema.json": (Timing, "Timing envelope, format 1"),
    "timing-event.schema.json": (TimingEvent, "Timing event, format 1"),
}
"""File name -> type and title."""


def schemas() -> dict[str, dict[str, Any]]:
    """File name -> JSON Schema (2020-12), the same on every run."""
    return {name: _schema(kind, title) for name, (kind, title) in sorted(DOCUMENTS.items())}


def _schema(kind: type[Record], title: str) -> dict[str, Any]:
    schema: dict[str, Any] = TypeAdapter(kind).json_schema()
    text = (kind.__doc__ or "").strip()
    if text and not text.startswith(f"{kind.__name__}("):
        schema["description"] = text
    return {"$schema": DIALECT, **schema, "title": title}
