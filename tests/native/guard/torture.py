"""What a Python program does to its memory; the same lines must come after a restore.

torture.py plain | mapped IMAGE LIBRARY | wait FILE, as the program in C beside it.
"""

import ctypes
import gc
import mmap
import os
import sys
import threading
import time
from pathlib import Path


def summary_of(found: dict[str, list[object]]) -> int:
    return hash(tuple(sorted((k, v[0], v[1]) for k, v in found.items())))


libc = ctypes.CDLL(None, use_errno=True)
MIB = 1 << 20

arrays = [bytearray(os.urandom(1000) * 3000) for _ in range(20)]
objects = {f"key-{i}": [i, f"value-{i}", (i, str(i))] for i in range(60000)}
region = mmap.mmap(-1, 8 * MIB, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
region[:] = bytes(range(256)) * (8 * MIB // 256)
before = [bytes(a) for a in arrays]
summary = summary_of(objects)

if sys.argv[1] == "mapped":
    mapper = ctypes.PyDLL(sys.argv[3])
    mapper.coldsnap_map_image(sys.argv[2].encode(), None, ctypes.c_size_t(0))
    if Path("/proc/self/maps").read_text().count("/run/coldsnap/image") > 3:
        print("mapped", file=sys.stderr)
elif sys.argv[1] == "wait":
    print("ready", file=sys.stderr, flush=True)
    while not Path(sys.argv[2]).exists():
        time.sleep(0.02)

print("arrays", [bytes(a) for a in arrays] == before)
print("objects", summary_of(objects) == summary)
for number, array in enumerate(arrays):
    for _ in range(30):
        array.extend(bytes(333333))
    assert array[:3000000] == before[number]
    assert not any(array[3000000:])
print("grown", sum(map(len, arrays)))
region.madvise(mmap.MADV_DONTNEED)
print("dontneed", not any(region[:]))
region[:] = b"x" * len(region)
region.resize(12 * MIB)
print("resized", region[: 8 * MIB] == b"x" * (8 * MIB), not any(region[8 * MIB :]))
del arrays[::2]
for key in list(objects)[::3]:
    del objects[key]
gc.collect()
print("trim", libc.malloc_trim(0) in (0, 1))
print("zeros", all(not any(bytes(n)) for n in (100, 10000, 300000, 3 * MIB)))


def work(results: dict[int, int], number: int) -> None:
    results[number] = sum(len(str(x)) for x in range(20000))


for _ in range(10):
    results = {}
    threads = [threading.Thread(target=work, args=(results, i)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(results.values())) == 1
print("threads", len(results))
pid = os.fork()
if pid == 0:
    arrays[0][:] = b"c" * len(arrays[0])
    os._exit(0 if len(objects) == 40000 else 1)
print("fork", os.waitpid(pid, 0)[1], arrays[0][:3000000] == before[1])
print("done", flush=True)
