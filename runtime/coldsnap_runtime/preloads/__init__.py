"""Libraries that an engine is started with (LD_PRELOAD), as its own Python code sees them.

Used inside engines: standard library and coldsnap.artifact only.
"""

from coldsnap_runtime.preloads.mappings import FileMappings, file_mappings
from coldsnap_runtime.preloads.nccl import NcclBridge, nccl_bridge

__all__ = ["FileMappings", "NcclBridge", "file_mappings", "nccl_bridge"]
