"""Units whose engines are started with ColdSnap's libraries: over a capture and a restore."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from native_build import build_native
from unit_workplace import Workplace

from coldsnap.artifact.errors import ColdSnapError
from coldsnap_runtime import cuda_checkpoint
from coldsnap_runtime.preload_place import remembered_gpus, write_nvml_map
from coldsnap_runtime.unit_capture import Capture

sys.path.insert(0, str(Path(__file__).parents[2] / "fakes"))
from cuda_driver import build_library, make_driver

ENGINE = """
import ctypes, http.server, json, mmap, os
ctypes.CDLL(DRIVER)
nccl, nvml, own = ctypes.CDLL(NCCL), ctypes.CDLL(NVML), ctypes.CDLL(None)
class Id(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_byte * 128)]
nccl.ncclCommInitRank.argtypes = [ctypes.c_void_p, ctypes.c_int, Id, ctypes.c_int]
nccl.ncclAllReduce.argtypes = [ctypes.c_void_p] * 2 + [ctypes.c_size_t, ctypes.c_int, ctypes.c_int,
                                                       ctypes.c_void_p, ctypes.c_void_p]
for name in ("close", "rebuild"):
    getattr(own, "coldsnap_nccl_" + name).argtypes = [ctypes.c_void_p, ctypes.c_double]
id, comm = Id(), ctypes.c_void_p()
nccl.ncclGetUniqueId(ctypes.byref(id))
assert nccl.ncclCommInitRank(ctypes.byref(comm), 1, id, 0) == 0
assert nvml.nvmlInit_v2() == 0
card = ctypes.c_void_p()
assert nvml.nvmlDeviceGetHandleByIndex_v2(1, ctypes.byref(card)) == 0
size = os.path.getsize(WEIGHTS)
own.mmap.restype = ctypes.c_void_p
own.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t] + [ctypes.c_int] * 3 + [ctypes.c_long]
file = os.open(WEIGHTS, os.O_RDONLY)
place = own.mmap(None, size, mmap.PROT_READ, mmap.MAP_PRIVATE, file, 0)
os.close(file)

def text(call):
    buffer = ctypes.create_string_buffer(96)
    code = call(card, buffer, 96)
    return buffer.value.decode() if code == 0 else code

def summed():
    one, got = ctypes.c_int(41), ctypes.c_int()
    code = nccl.ncclAllReduce(ctypes.byref(one), ctypes.byref(got), 1, 2, 0, comm, None)
    return got.value if code == 0 else -code

class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        done = None
        if self.path == "/close": done = own.coldsnap_nccl_close(None, 5.0)
        if self.path == "/rebuild": done = own.coldsnap_nccl_rebuild(None, 5.0)
        body = json.dumps({"done": done, "sum": summed(), "live": nccl.fake_nccl_live(),
            "uuid": text(nvml.nvmlDeviceGetUUID), "card": text(nvml.nvmlDeviceGetName),
            "weights": ctypes.string_at(place + size - 3, 3).decode()}).encode()
        self.send_response(200); self.end_headers(); self.wfile.write(body)
    def log_message(self, *args): pass
http.server.HTTPServer(("127.0.0.1", 8000), Handler).serve_forever()
"""


@pytest.fixture(scope="session")
def fakes(native_programs: Path) -> Path:
    """Build folder with a libnccl and an NVML that have no devices."""
    for target in ("coldsnap_fake_nccl", "coldsnap_fake_nvml"):
        build_native(native_programs, target)
    return native_programs


@pytest.mark.criu
def test_handles_outlive_a_restore_onto_another_gpu(
    workplace: Workplace, fakes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A live process, by CRIU: communicators, NVML's handles, a mapped file that is gone."""
    monkeypatch.setattr(cuda_checkpoint, "_MOVE_SECONDS", 2.0)
    library = build_library(tmp_path)
    driver = make_driver(tmp_path / "driver", library, monkeypatch)
    for index in (0, 1):
        driver.gpu(index)
    engines = tmp_path / "engines"
    engines.mkdir()
    copies = {}
    for name, path in (("NCCL", "bridge/libnccl.so.2"), ("NVML", "shims/libnvidia-ml.so.1")):
        copies[name] = engines / Path(path).name
        copies[name].write_bytes((fakes / path).read_bytes())
    weights = engines / "weights.bin"
    weights.write_bytes(bytes(1 << 20) + b"end")
    uuid = "GPU-{:02x}000000-0000-0000-0000-000000000000".format
    (engines / "gpus").write_text(f"{uuid(0)}\n{uuid(1)}\n")
    text = ENGINE.replace("DRIVER", repr(str(library))).replace("WEIGHTS", repr(str(weights)))
    text = text.replace("NCCL)", f"{str(copies['NCCL'])!r})")
    text = text.replace("NVML)", f"{str(copies['NVML'])!r})")
    (driver.folder / "1001").write_text("0")
    unit = workplace.serve(
        workplace.script("engine.py", text),
        preload=["nccl", "nvml", "mmap"],
        env={
            "FAKE_NCCL_DIR": "/tmp", "FAKE_NVML_GPUS": str(engines / "gpus"),
            "COLDSNAP_MMAP_COPY": f"{engines}/*.bin",
        },
    )  # fmt: skip
    at_first = {
        "done": None, "sum": 41, "live": 1, "uuid": uuid(1), "card": f"card {uuid(1)}",
        "weights": "end",
    }  # fmt: skip
    assert workplace.ask(unit) == at_first
    assert workplace.ask(unit, "/close") == {**at_first, "done": 0, "sum": -5, "live": 0}
    folder = Path(workplace.checkpoint(unit)["capture_dir"])
    assert workplace.ask(unit, "/rebuild") == {**at_first, "done": 0}
    workplace.stop(unit)
    weights.unlink()

    # The host has other GPUs now; the second of the unit is the first here.
    (driver.folder / "1001").write_text("2")
    capture = Capture.read(folder)
    assert capture.cuda is not None
    assert capture.cuda["gpus"][0]["remembered"]["index"] in (0, 1)
    (engines / "gpus").write_text(f"{uuid(9)}\n")
    map_of = [{"uuid": uuid(1), "remembered": {"index": 1, "uuid": uuid(1)}}]
    restored = workplace.restore(folder)
    paths = workplace.store.paths(restored.unit, restored.generation)
    assert (paths.control / "nvml.map").is_file()
    write_nvml_map(paths.control, map_of, [(uuid(1), uuid(9))])
    assert workplace.ask(restored) == {
        **at_first, "sum": -5, "live": 0, "card": f"card {uuid(9)}"
    }  # fmt: skip
    assert workplace.ask(restored, "/rebuild") == {
        **at_first, "done": 0, "card": f"card {uuid(9)}"
    }  # fmt: skip


def test_what_an_engine_remembers_goes_through_several_restores(tmp_path: Path) -> None:
    first = remembered_gpus(tmp_path, [{"uuid": "GPU-aa-1", "index": 3}])
    assert first[0]["remembered"] == {"index": 3, "uuid": "GPU-aa-1"}
    write_nvml_map(tmp_path, first, [("GPU-aa-1", "GPU-bb-1")])
    assert (tmp_path / "nvml.map").read_text() == "3 GPU-aa-1 GPU-bb-1\n"
    again = remembered_gpus(tmp_path, [{"uuid": "GPU-bb-1", "index": 0}])
    assert again[0]["remembered"] == {"index": 3, "uuid": "GPU-aa-1"}
    write_nvml_map(tmp_path, again, [("GPU-bb-1", "GPU-cc-1")])
    assert (tmp_path / "nvml.map").read_text() == "3 GPU-aa-1 GPU-cc-1\n"


@pytest.mark.criu
def test_a_library_that_nobody_knows_or_that_the_pack_lacks(workplace: Workplace) -> None:
    script = workplace.script("none.py", "")
    with pytest.raises(ColdSnapError) as caught:
        workplace.launch(script, preload=["jemalloc"])
    assert caught.value.code == "request.invalid"
    assert "launch.preload must be of nccl, nvml, mmap, not 'jemalloc'" in caught.value.message
