"""One rank of real NCCL through the bridge: torch.distributed, and a communicator by ctypes.

Run by an interpreter with torch and a GPU, with coldsnap and coldsnap_runtime on PYTHONPATH and
libcoldsnap_nccl preloaded and switched on. The last line is a JSON object.
"""

import ctypes
import json
import os
import sys
import time

import torch
import torch.distributed as dist

from coldsnap.artifact.errors import ColdSnapError
from coldsnap_runtime.preloads import nccl_bridge

FLOAT32, SUM = 7, 0


class Id(ctypes.Structure):
    _fields_ = (("internal", ctypes.c_byte * 128),)


bridge = nccl_bridge()
assert bridge is not None
torch.cuda.set_device(0)
os.environ.setdefault("NCCL_SOCKET_IFNAME", "lo")
dist.init_process_group(
    "nccl", init_method=f"tcp://127.0.0.1:{sys.argv[1]}", rank=0, world_size=1,
    device_id=torch.device("cuda:0"),
)  # fmt: skip
given = torch.arange(1 << 20, device="cuda", dtype=torch.float32)

library = ctypes.CDLL(bridge.status()["library"])
library.ncclCommInitRank.argtypes = [ctypes.c_void_p, ctypes.c_int, Id, ctypes.c_int]
library.ncclAllReduce.argtypes = [
    ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_void_p,
    ctypes.c_void_p,
]  # fmt: skip
library.ncclCommDestroy.argtypes = [ctypes.c_void_p]
comm, identity = ctypes.c_void_p(), Id()
assert library.ncclGetUniqueId(ctypes.byref(identity)) == 0
assert library.ncclCommInitRank(ctypes.byref(comm), 1, identity, 0) == 0


def by_torch() -> bool:
    got = given.clone()
    dist.all_reduce(got)
    torch.cuda.synchronize()
    return torch.equal(got, given)


def enqueue(into) -> int:
    stream = torch.cuda.current_stream().cuda_stream
    return library.ncclAllReduce(
        given.data_ptr(), into.data_ptr(), given.numel(), FLOAT32, SUM, comm, stream
    )


def by_ctypes() -> bool:
    got = torch.zeros_like(given)
    code = enqueue(got)
    torch.cuda.synchronize()
    return code == 0 and torch.equal(got, given)


def by_graph() -> bool:
    """Captured, replayed, dropped; what the bridge says to a close meanwhile."""
    graph, got = torch.cuda.CUDAGraph(), torch.zeros_like(given)
    with torch.cuda.graph(graph, stream=torch.cuda.Stream()):
        enqueue(got)
    graph.replay()
    torch.cuda.synchronize()
    try:
        bridge.close(seconds=5)
        refusal = ""
    except ColdSnapError as error:
        refusal = error.code
    graph.reset()
    return torch.equal(got, given) and refusal == "nccl.refused"


found = {"before": [by_torch(), by_ctypes()], "graph": by_graph(), "turns": [], "seconds": []}
for _ in range(3):
    begin = time.monotonic()
    bridge.close(graphs_dropped=True, seconds=20)
    closed = time.monotonic() - begin
    refused = enqueue(torch.zeros_like(given))
    time.sleep(1)  # torch's watchdog looks in
    begin = time.monotonic()
    bridge.rebuild(seconds=30)
    found["seconds"].append([round(closed, 3), round(time.monotonic() - begin, 3)])
    found["turns"].append([refused, by_torch(), by_ctypes()])
found["graph again"] = by_graph()
found["version"] = bridge.status()["version"]
found["destroyed"] = [library.ncclCommDestroy(comm) for _ in range(2)]
dist.destroy_process_group()
found["left"] = len(bridge.status()["communicators"])
print(json.dumps(found))
