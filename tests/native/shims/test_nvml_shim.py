"""What an engine hears of its GPUs after a restore onto others."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

HERE, THERE = "GPU-aaaa-0\nGPU-aaaa-1\n", "GPU-bbbb-0\nGPU-bbbb-1\nGPU-bbbb-2\n"
PRELUDE = """
import ctypes, json, os, threading
from pathlib import Path
nvml = ctypes.CDLL(os.environ["FAKE_NVML"])
own = ctypes.CDLL(None)
def text(call, handle):
    buffer = ctypes.create_string_buffer(96)
    return (call(handle, buffer, 96), buffer.value.decode())
def number(call, *arguments):
    value = ctypes.c_uint(99)
    return (call(*arguments, ctypes.byref(value)), value.value)
def look(call, what):
    handle = ctypes.c_void_p()
    code = call(what, ctypes.byref(handle))
    return handle if code == 0 else code
def by_index(index): return look(nvml.nvmlDeviceGetHandleByIndex_v2, index)
def by_uuid(uuid): return look(nvml.nvmlDeviceGetHandleByUUID, uuid.encode())
def status():
    buffer = ctypes.create_string_buffer(4096)
    own.coldsnap_nvml_status(buffer, 4096)
    return json.loads(buffer.value)
def told(handle):
    return [text(nvml.nvmlDeviceGetUUID, handle)[1], number(nvml.nvmlDeviceGetIndex, handle)[1],
            text(nvml.nvmlDeviceGetName, handle)[1]]
def restored(gpus, mapping):
    Path(os.environ["FAKE_NVML_GPUS"]).write_text(gpus)
    map = Path(os.environ["COLDSNAP_NVML_MAP"])
    (map.parent / "t").write_text(mapping); os.rename(map.parent / "t", map)
assert nvml.nvmlInit_v2() == 0
"""


@pytest.fixture
def engine(run, programs, fake_nvml, tmp_path):
    (tmp_path / "gpus").write_text(HERE)

    def call(code: str, mode: str = "map", **more: object):
        return run(
            PRELUDE + code, programs / "libcoldsnap_nvml.so", FAKE_NVML=fake_nvml,
            FAKE_NVML_GPUS=tmp_path / "gpus", COLDSNAP_NVML_MAP=tmp_path / "map",
            COLDSNAP_NVML_SHIM=mode, **more,
        )  # fmt: skip

    return call


def test_before_a_restore_nothing_is_different(engine) -> None:
    code = """
print(json.dumps([told(by_index(0)), told(by_uuid("GPU-aaaa-1")), by_index(2), by_uuid("GPU-x"),
    number(nvml.nvmlDeviceGetCount_v2), by_index(1).value == by_uuid("GPU-aaaa-1").value,
    status()]))
"""
    zero, one, beyond, unknown, count, is_same, status = engine(code)
    assert zero == ["GPU-aaaa-0", 0, "card GPU-aaaa-0"]
    assert one == ["GPU-aaaa-1", 1, "card GPU-aaaa-1"]
    assert (beyond, unknown) == (2, 6)
    assert count == [0, 2]
    assert is_same
    assert status == {"mode": "map", "devices": 2, "mapped": 0, "refreshed": 0, "error": ""}


def test_after_it_the_engine_hears_what_it_remembers_of_other_gpus(engine) -> None:
    """GPUs 0, 1 of one host became 2, 0 of another; its old handles are good."""
    code = f"""
assert nvml.nvmlInit_v2() == 0
first, second = by_index(0), by_uuid("GPU-aaaa-1")
restored({THERE!r}, "0 GPU-aaaa-0 GPU-bbbb-2\\n1 GPU-aaaa-1 GPU-bbbb-0\\n")
status_number = ctypes.c_int()
samples = [ctypes.c_uint() for _ in range(3)]
nvml.nvmlDeviceGetSamples.argtypes = [ctypes.c_void_p, ctypes.c_uint, ctypes.c_ulonglong] + [
    ctypes.c_void_p] * 3
print(json.dumps(dict(
    old=[told(first), told(second)], new=[told(by_index(0)), told(by_index(1))],
    same=by_index(0).value == first.value and by_uuid("GPU-aaaa-0").value == first.value,
    count=number(nvml.nvmlDeviceGetCount_v2), beyond=by_index(2),
    p2p=[nvml.nvmlDeviceGetP2PStatus(first, second, 3, ctypes.byref(status_number)),
         status_number.value],
    six=[nvml.nvmlDeviceGetSamples(first, 5, 0x123456789abc, *map(ctypes.addressof, samples)),
         *[s.value for s in samples]],
    driver=text(lambda h, b, n: nvml.nvmlSystemGetDriverVersion(b, n), None),
    shut=[nvml.nvmlShutdown() for _ in range(3)], status=status())))
"""
    found = engine(code)
    assert found["old"] == found["new"] == [
        ["GPU-aaaa-0", 0, "card GPU-bbbb-2"], ["GPU-aaaa-1", 1, "card GPU-bbbb-0"]
    ]  # fmt: skip
    assert found["same"]
    assert found["count"] == [0, 2]
    assert found["beyond"] == 2
    assert found["p2p"] == [0, 2 * 100 + 0 * 10 + 3]
    assert found["six"] == [0, 5, 1, 7]
    assert found["driver"] == [0, "580.159"]
    assert found["shut"] == [0, 0, 1]
    assert found["status"]["refreshed"] == 1


def test_the_same_gpus_and_a_second_restore(engine) -> None:
    code = f"""
first = by_index(0)
restored({HERE!r}, "0 GPU-aaaa-0 GPU-aaaa-0\\n1 GPU-aaaa-1 GPU-aaaa-1\\n")
there = told(first)
restored({THERE!r}, "0 GPU-aaaa-0 GPU-bbbb-1\\n1 GPU-aaaa-1 GPU-bbbb-2\\n")
again = told(first)
restored("GPU-cccc\\n", "0 GPU-aaaa-0 GPU-dddd\\n")
print(json.dumps([there, again, nvml.nvmlDeviceGetName(first, None, 0), status()["refreshed"]]))
"""
    there, again, lost, refreshed = engine(code)
    assert there == ["GPU-aaaa-0", 0, "card GPU-aaaa-0"]
    assert again == ["GPU-aaaa-0", 0, "card GPU-bbbb-1"]
    assert lost == 6
    assert refreshed == 3


@pytest.mark.parametrize(
    ("mapping", "error"),
    [
        ("0 GPU-aaaa-0\n", "line 1 is not"),
        ("0 GPU-aaaa-0 GPU-bbbb-0 more\n", "line 1 is not"),
        ("0 GPU-aaaa-0 GPU-bbbb-0\n1 GPU-aaaa-1 GPU-bbbb-0\n", "line 2 names a GPU again"),
        ("0 GPU-aaaa-0 ../../etc\n", "line 1 is not"),
        ("999 GPU-aaaa-0 GPU-bbbb-0\n", "line 1 is not"),
        ("0 " + "G" * 40000, "larger than 32768"),
    ],
)
def test_a_damaged_map_is_as_none(engine, mapping, error) -> None:
    code = f"""
restored({HERE!r}, {mapping!r})
print(json.dumps([told(by_index(1)), status()]))
"""
    found, status = engine(code)
    assert found == ["GPU-aaaa-1", 1, "card GPU-aaaa-1"]
    assert status["error"].startswith(error) or error in status["error"]
    assert status["mapped"] == 0


def test_many_threads_over_restores(engine) -> None:
    code = f"""
first = by_index(0)
ends, wrong = [], []
def ask():
    while not ends:
        uuid, index, name = told(first)
        if (uuid, index) != ("GPU-aaaa-0", 0) or "card GPU-" not in name: wrong.append(name)
threads = [threading.Thread(target=ask) for _ in range(4)]
[t.start() for t in threads]
for turn in range(20):
    gpu = f"GPU-bbbb-{{turn % 3}}"
    restored({THERE!r}, f"0 GPU-aaaa-0 {{gpu}}\\n")
    assert told(by_index(0))[2] == "card " + gpu
ends.append(1); [t.join() for t in threads]
print(json.dumps([wrong[:3], status()["refreshed"]]))
"""
    wrong, refreshed = engine(code)
    assert wrong == []
    assert 10 <= refreshed <= 20


def test_other_ways_to_look_a_device_up_are_not_there(engine) -> None:
    code = 'print(json.dumps(hasattr(nvml, "nvmlDeviceGetHandleByUUIDV")))'
    assert engine(code) is False
    assert engine(code, mode="") is True


def test_without_the_switch_handles_are_nvmls(engine) -> None:
    code = f"""
first = by_index(0)
name = ctypes.string_at(first, 10).decode()
restored({THERE!r}, "0 GPU-aaaa-0 GPU-bbbb-2\\n")
print(json.dumps([name, told(first), status()["mode"]]))
"""
    assert engine(code, mode="") == ["GPU-aaaa-0", ["GPU-aaaa-0", 0, "card GPU-aaaa-0"], "off"]


def test_nvml_can_be_hidden(run, programs, fake_nvml) -> None:
    code = """
import ctypes, json, os
def tried():
    try: ctypes.CDLL(os.environ["FAKE_NVML"]); return "there"
    except OSError as error: return str(error)
hidden = tried()
loaded = "libnvidia-ml" in open("/proc/self/maps").read()
ctypes.CDLL(None).coldsnap_nvml_show()
print(json.dumps([hidden, loaded, tried()]))
"""
    found = run(
        code, programs / "libcoldsnap_nvml.so", FAKE_NVML=fake_nvml,
        COLDSNAP_NVML_SHIM="hide",
    )  # fmt: skip
    assert found[0].startswith("libnvidia-ml.so is hidden by coldsnap")
    assert found[1:] == [False, "there"]


def test_beside_the_bridge_of_nccl(run, programs, fake_nvml, build_target, tmp_path) -> None:
    """Both stand before dlsym; each order works."""
    build_target("coldsnap_fake_nccl")
    (tmp_path / "gpus").write_text(HERE)
    bridge = programs / "bridge"
    code = (
        PRELUDE
        + """
nccl = ctypes.CDLL(os.environ["FAKE_NCCL"])
class Id(ctypes.Structure): _fields_ = [("b", ctypes.c_byte * 128)]
nccl.ncclCommInitRank.argtypes = [ctypes.c_void_p, ctypes.c_int, Id, ctypes.c_int]
id, comm = Id(), ctypes.c_void_p()
nccl.ncclGetUniqueId(ctypes.byref(id)); nccl.ncclCommInitRank(ctypes.byref(comm), 1, id, 0)
own.coldsnap_nccl_close.argtypes = [ctypes.c_uint, ctypes.c_double]
print(json.dumps([own.coldsnap_nccl_close(0, 5.0), nccl.fake_nccl_live(), told(by_index(1)),
    status()["devices"]]))
"""
    )
    libraries = [programs / "libcoldsnap_nccl.so", programs / "libcoldsnap_nvml.so"]
    for order in (libraries, libraries[::-1]):
        found = run(
            code, *order, FAKE_NVML=fake_nvml,
            FAKE_NVML_GPUS=tmp_path / "gpus", COLDSNAP_NVML_SHIM="map",
            FAKE_NCCL=bridge / "libnccl.so.2", COLDSNAP_NCCL_BRIDGE="on", FAKE_NCCL_DIR=tmp_path,
        )  # fmt: skip
        assert found == [0, 0, ["GPU-aaaa-1", 1, "card GPU-aaaa-1"], 1]


def test_pynvml_of_nvidia(run, programs, fake_nvml, tmp_path) -> None:
    """The binding that engines use, as it is."""
    (tmp_path / "gpus").write_text(HERE)
    code = f"""
import json, os
from pathlib import Path
import pynvml
pynvml.nvmlInit()
card = pynvml.nvmlDeviceGetHandleByIndex(1)
before = pynvml.nvmlDeviceGetUUID(card), pynvml.nvmlDeviceGetName(card)
Path(os.environ["FAKE_NVML_GPUS"]).write_text({THERE!r})
Path(os.environ["COLDSNAP_NVML_MAP"]).write_text("1 GPU-aaaa-1 GPU-bbbb-2\\n")
after = pynvml.nvmlDeviceGetUUID(card), pynvml.nvmlDeviceGetName(card)
print(json.dumps([before, after, pynvml.nvmlDeviceGetCount(), pynvml.nvmlDeviceGetIndex(card),
    pynvml.nvmlSystemGetDriverVersion()]))
"""
    found = run(
        code, programs / "libcoldsnap_nvml.so", LD_LIBRARY_PATH=fake_nvml.parent,
        FAKE_NVML_GPUS=tmp_path / "gpus", COLDSNAP_NVML_MAP=tmp_path / "map",
        COLDSNAP_NVML_SHIM="map",
    )  # fmt: skip
    assert found == [
        ["GPU-aaaa-1", "card GPU-aaaa-1"], ["GPU-aaaa-1", "card GPU-bbbb-2"], 1, 1, "580.159"
    ]  # fmt: skip


@pytest.mark.parametrize("kind", ["address,undefined", "thread"])
def test_under_sanitizers(tmp_path, kind) -> None:
    """Threads that ask all the time while the GPUs become others."""
    root = Path(__file__).parents[3] / "native" / "shims"
    program = tmp_path / "turns"
    sources = [root / "src" / name for name in ("nvml_calls.c", "devices.c", "map.c")]
    sources += [root / "tests" / "fake_nvml.c", root / "tests" / "turns.c"]
    built = subprocess.run(
        [
            "cc", "-std=gnu11", "-g", "-O1", f"-fsanitize={kind}", "-fno-sanitize-recover=all",
            "-D_GNU_SOURCE", "-rdynamic", f"-I{root}/src", *map(str, sources), "-o", str(program),
            "-pthread", "-ldl",
        ],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert built.returncode == 0, built.stderr
    done = subprocess.run(
        [str(program), str(tmp_path)], capture_output=True, text=True, check=False, timeout=120
    )
    if "unexpected memory mapping" in done.stderr:
        pytest.skip("this kernel's address layout is not what ThreadSanitizer expects")
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.startswith("turns ")
