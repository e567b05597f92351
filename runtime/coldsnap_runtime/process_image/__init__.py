"""CRIU's process images, read, measured and rewritten so that a restore need not wait for them.

Importing this costs nothing: pycriu and its protobuf are loaded when an image is read, which
only a capture does. `fill_index` alone is enough to look at a rung at a restore.
"""

from __future__ import annotations

from coldsnap_runtime.process_image.rewrite import Mode, Moved, Rewritten, rewrite
from coldsnap_runtime.process_image.size_table import sizes

__all__ = ["Mode", "Moved", "Rewritten", "rewrite", "sizes"]
