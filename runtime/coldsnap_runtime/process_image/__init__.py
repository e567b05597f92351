"""CRIU's process images, read, measured and rewritten so that a restore need not wait for them.

Importing this costs nothing: pycriu and its protobuf are loaded when an image is read, which
only a capture does. `fill_index` alone is enough to look at a rung at a restore.
"""

from __future__ import annotations

from coldsnap_runtime.process_image.fill_index import read_fill_index
from coldsnap_runtime.process_image.mapped_by import processes_without
from coldsnap_runtime.process_image.rewrite import Mode, Moved, Rewritten, rewrite
from coldsnap_runtime.process_image.size_table import sizes

__all__ = [
    "Mode",
    "Moved",
    "Rewritten",
    "processes_without",
    "read_fill_index",
    "rewrite",
    "sizes",
]
