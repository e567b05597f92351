"""Libraries that an engine is started with (LD_PRELOAD), as its own Python code sees them.

Used inside engines: standard library and coldsnap.artifact only.
"""

from coldsnap_runtime.preloads.nccl import NcclBridge, nccl_bridge

__all__ = ["NcclBridge", "nccl_bridge"]
