"""The library's codes in our words: the same errors as the reader and writer in Python."""

from __future__ import annotations

from coldsnap.artifact.errors import ColdSnapError
from coldsnap.artifact.pack_index import PAYLOAD_REMEDY
from coldsnap_runtime.hydrate.structures import Code

_CODES: dict[int, tuple[str, str]] = {
    Code.INVALID: ("hydrate.invalid", ""),
    Code.MISSING: ("file.missing", ""),
    Code.NOT_REGULAR: ("file.not-regular", ""),
    Code.FILE: ("file.unreadable", ""),
    Code.SHORT: ("pack.short", ""),
    Code.GROWN: ("pack.grown", ""),
    Code.CHANGED: ("pack.changed", "let nothing write to the pack, and try again"),
    Code.DIFFERS: ("pack.chunk-differs", PAYLOAD_REMEDY),
    Code.PADDING: ("pack.padding", PAYLOAD_REMEDY),
    Code.CANCELLED: ("hydrate.cancelled", ""),
    Code.DEADLINE: ("hydrate.deadline", "give it more time, or look at what slows the disk"),
    Code.DISK_FULL: (
        "file.disk-full",
        "free space on that file system, or choose another folder",
    ),
    Code.NO_MEMORY: ("hydrate.no-memory", ""),
    Code.NO_DEVICE: ("hydrate.no-device", "check the NVIDIA driver: nvidia-smi"),
    Code.DEVICE: ("hydrate.device", ""),
}


def failure(code: int, message: str, subject: str = "") -> ColdSnapError:
    """The error that a code stands for; `subject`: the file, when the message does not name it."""
    name, remedy = _CODES.get(code, ("hydrate.internal", ""))
    text = message if not subject or subject in message else f"{subject}: {message}"
    return ColdSnapError(name, text, remedy=remedy)
