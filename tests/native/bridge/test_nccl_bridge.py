"""Engines' communicators are closed and made again behind the same handles."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

HANDLES = """
comm = nccl.comm()
before = nccl.sum(comm, [1, 2, 3])
at_work = bridge.status()
bridge.close()
live = fake.fake_nccl_live()
refused = nccl.sum(comm, [1])
why = nccl.lib.ncclGetLastError(comm).decode()
error = ctypes.c_int(9); rank = ctypes.c_int(9); count = ctypes.c_int(9)
watchdog = nccl.lib.ncclCommGetAsyncError(comm, ctypes.byref(error))
nccl.lib.ncclCommUserRank(comm, ctypes.byref(rank))
nccl.lib.ncclCommCount(comm, ctypes.byref(count))
closed = bridge.status()["state"]
bridge.rebuild()
print(json.dumps(dict(before=before, after=nccl.sum(comm, [4, 5]), live=live, refused=refused,
    why=why, watchdog=[watchdog, error.value, rank.value, count.value], closed=closed,
    state=bridge.status()["state"], now=fake.fake_nccl_live(), status=at_work,
    destroyed=[nccl.lib.ncclCommDestroy(comm) for _ in range(2)], left=fake.fake_nccl_live())))
"""


def test_a_communicator_comes_back_behind_its_handle(start) -> None:
    found = start(HANDLES).end()
    assert found["before"] == [1, 2, 3]
    assert found["after"] == [4, 5]
    assert (found["live"], found["now"], found["left"]) == (0, 1, 0)
    assert found["refused"] == 5
    assert found["why"].startswith("the communicators are closed for a snapshot by coldsnap")
    assert found["watchdog"] == [0, 0, 0, 1]
    assert (found["closed"], found["state"]) == ("closed", "open")
    assert found["destroyed"] == [0, 4]
    assert found["status"]["version"] == 22809
    assert found["status"]["library"].endswith("libnccl.so.2")
    assert len(found["status"]["communicators"]) == 1


def test_several_times(start) -> None:
    code = """
    comms = [nccl.comm() for _ in range(5)]
    for turn in range(20):
        bridge.close(); bridge.rebuild()
        assert [nccl.sum(comm, [turn]) for comm in comms] == [[turn]] * 5
    print(json.dumps([bridge.status()["rebuilt"], fake.fake_nccl_live()]))
    """
    assert start(code).end() == [20, 5]


RANK = """
rank = int(sys.argv[1]) if len(sys.argv) > 1 else int(os.environ["RANK"])
store = Path(os.environ["FAKE_NCCL_DIR"])
def shared(name):
    path = store / name
    if rank == 0:
        made = nccl.id()
        (store / (name + ".t")).write_bytes(bytes(made))
        os.rename(store / (name + ".t"), path)
        return made
    while not path.exists(): time.sleep(0.002)
    return Id.from_buffer_copy(path.read_bytes())
one, other = nccl.comm(2, shared("a"), rank), nccl.comm(2, shared("b"), rank)
child = ctypes.c_void_p()
assert nccl.lib.ncclCommSplit(one, 1, rank, ctypes.byref(child), None) == 0
nobody = ctypes.c_void_p(1)
assert nccl.lib.ncclCommSplit(one, -1, rank, ctypes.byref(nobody), None) == 0
sums = [nccl.sum(c, [rank + 1, 10]) for c in (one, other, child)]
"""


@pytest.mark.parametrize("way", ["folder", "exchange"])
def test_two_ranks_find_each_other_again(start, tmp_path, way) -> None:
    """Communicators of two processes, one split off another."""
    (tmp_path / "meet").mkdir()
    code = (
        RANK
        + """
bridge.close()
meeting = store / "meet"
if os.environ["WAY"] == "exchange":
    def publish(key, value):
        (meeting / "t").write_bytes(value)
        os.rename(meeting / "t", meeting / key)
    def fetch(key, seconds):
        while not (meeting / key).exists(): time.sleep(0.002)
        return (meeting / key).read_bytes()
    bridge.rebuild(Exchange(publish, fetch), seconds=20)
else:
    bridge.rebuild(meeting, seconds=20)
after = [nccl.sum(c, [rank + 1, 10]) for c in (one, other, child)]
names = sorted(c["identity"] for c in bridge.status()["communicators"])
print(json.dumps([sums, after, nobody.value, names]))
"""
    )
    processes = [start(code, RANK=str(rank), WAY=way) for rank in (0, 1)]
    first, second = (process.end() for process in processes)
    assert first == second
    assert first[0] == first[1] == [[3, 20]] * 3
    assert first[2] is None
    assert len(set(first[3])) == 3


def test_a_rank_that_does_not_come_is_waited_for_so_long(start, tmp_path) -> None:
    (tmp_path / "meet").mkdir()
    alone = (
        RANK
        + """
bridge.close()
if rank == 0: print(json.dumps(None)); os._exit(0)
print(json.dumps([failing(bridge.rebuild, store / "meet", seconds=1.0),
    nccl.sum(one, [1]), bridge.status()["state"], nccl.lib.ncclGetLastError(one).decode(),
    failing(bridge.rebuild, store / "meet"), nccl.lib.ncclCommDestroy(one)]))
"""
    )
    processes = [start(alone, RANK=str(rank)) for rank in (0, 1)]
    processes[0].end()
    error, refused, state, why, again, gone = processes[1].end()
    assert error[0] in ("nccl.exchange", "nccl.deadline")
    assert "rank" in error[1]
    assert (refused, state) == (5, "unusable")
    assert "stop the engine" in why
    assert again[0] == "nccl.state"
    assert gone == 0


def test_a_folder_from_an_earlier_rebuild_is_not_taken(start, tmp_path) -> None:
    (tmp_path / "meet").mkdir()
    code = (
        RANK
        + """
bridge.close()
if rank == 1: print(json.dumps(None)); os._exit(0)
for c in bridge.status()["communicators"]:
    (store / "meet" / (c["identity"] + ".0")).write_bytes(b"old")
print(json.dumps(failing(bridge.rebuild, store / "meet", seconds=5.0)))
"""
    )
    processes = [start(code, RANK=str(rank)) for rank in (0, 1)]
    error = processes[0].end()
    assert error[0] == "nccl.exchange"
    assert "is there already: give every rebuild a folder of its own" in error[1]


def test_ranks_without_an_exchange_are_an_error(start) -> None:
    code = RANK + "bridge.close(); print(json.dumps(failing(bridge.rebuild, seconds=5.0)))"
    first, second = [start(code, RANK=str(rank)) for rank in (0, 1)]
    assert first.end()[0] == second.end()[0] == "nccl.exchange"


@pytest.mark.parametrize(
    ("prepare", "code", "text", "state"),
    [
        ("fault('destroy-fails')", "nccl.failed", "failed: 1: fake failure", "unusable"),
        ("fault('destroy-hangs')", "nccl.deadline", "does a CUDA graph still hold", "unusable"),
        ("fault('async-error')", "nccl.refused", "has failed already: 6", "open"),
        (
            "nccl.lib.ncclDevCommCreate(comm, None, None)",
            "nccl.refused", "has device communicators", "open",
        ),
        (
            "nccl.lib.ncclTeleport(comm)",
            "nccl.refused", "functions of libnccl that the bridge does not know: ncclTeleport",
            "open",
        ),
        ("nccl.lib.ncclGroupStart()", "nccl.busy", "calls or groups of NCCL did not end", "open"),
        ("bridge.close()", "nccl.state", "closed already", "closed"),
    ],
)  # fmt: skip
def test_what_keeps_a_communicator_from_being_closed(start, prepare, code, text, state) -> None:
    program = f"""
comm = nccl.comm()
{prepare}
error = failing(bridge.close, seconds=0.6)
fault("")
print(json.dumps([error, bridge.status()["state"]]), flush=True)
os._exit(0)
"""
    error, now = start(program).end()
    assert error[0] == code
    assert text in error[1]
    assert now == state


def test_after_a_refusal_all_goes_on(start) -> None:
    code = """
    comm = nccl.comm()
    fault("async-error"); refused = failing(bridge.close); fault("")
    assert nccl.sum(comm, [7]) == [7]
    bridge.close(); bridge.rebuild()
    print(json.dumps([refused[0], nccl.sum(comm, [7])]))
    """
    assert start(code).end() == ["nccl.refused", [7]]


@pytest.mark.parametrize("fault", ["init-fails", "init-hangs"])
def test_what_keeps_a_communicator_from_coming_back(start, fault) -> None:
    code = f"""
    comm = nccl.comm()
    bridge.close()
    fault("{fault}")
    print(json.dumps([failing(bridge.rebuild, seconds=0.5), nccl.sum(comm, [1])]), flush=True)
    os._exit(0)
    """
    error, refused = start(code).end()
    assert error[0] == ("nccl.failed" if fault == "init-fails" else "nccl.deadline")
    assert refused == 5


def test_a_configuration_comes_back_with_its_strings_and_may_not_block(start) -> None:
    code = """
    name = ctypes.create_string_buffer(b"Socket")
    config = Config(ctypes.sizeof(Config), 0xcafebeef, 21800, 0)
    config.net_name = ctypes.cast(name, ctypes.c_char_p)
    comm = nccl.comm(config=config)
    error = ctypes.c_int(7)
    while error.value == 7: nccl.lib.ncclCommGetAsyncError(comm, ctypes.byref(error))
    name.raw = b"Gone!!!"
    bridge.close(); bridge.rebuild()
    print(json.dumps(nccl.sum(comm, [3])))
    """
    assert start(code).end() == [3]


def test_buffers_and_operators_come_back(start) -> None:
    code = """
    comm = nccl.comm()
    op, other, scalar = ctypes.c_int(), ctypes.c_int(), ctypes.c_int(3)
    nccl.lib.ncclRedOpCreatePreMulSum(ctypes.byref(op), ctypes.byref(scalar), 2, 1, comm)
    scalar.value = 5
    nccl.lib.ncclRedOpCreatePreMulSum(ctypes.byref(other), ctypes.byref(scalar), 2, 1, comm)
    handle = ctypes.c_void_p()
    buffer = ctypes.create_string_buffer(64)
    nccl.lib.ncclCommRegister.argtypes = [ctypes.c_void_p] * 2 + [ctypes.c_size_t, ctypes.c_void_p]
    assert nccl.lib.ncclCommRegister(comm, buffer, 64, ctypes.byref(handle)) == 0
    before = nccl.sum(comm, [2], op), nccl.sum(comm, [2], other)
    bridge.close(); bridge.rebuild()
    third = ctypes.c_int(); scalar.value = 7
    nccl.lib.ncclRedOpCreatePreMulSum(ctypes.byref(third), ctypes.byref(scalar), 2, 1, comm)
    after = [nccl.sum(comm, [2], op), nccl.sum(comm, [2], other), nccl.sum(comm, [2], third)]
    gone = [nccl.lib.ncclRedOpDestroy(op, comm), nccl.lib.ncclCommDeregister(comm, handle)]
    print(json.dumps([before, after, gone]))
    """
    code = code.replace("    comm = nccl.comm()\n", "    comm = nccl.comm()\n"
        "    nccl.lib.ncclCommDeregister.argtypes = [ctypes.c_void_p] * 2\n", 1)  # fmt: skip
    before, after, gone = start(code).end()
    assert before == [[6], [10]]
    assert after == [[6], [10], [14]]
    assert gone == [0, 0]


def test_all_ranks_in_one_process(start) -> None:
    code = """
    comms = (ctypes.c_void_p * 3)()
    assert nccl.lib.ncclCommInitAll(comms, 3, None) == 0
    comms = [ctypes.c_void_p(c) for c in comms]
    bridge.close(); live = fake.fake_nccl_live(); bridge.rebuild(seconds=10)
    got = {}
    threads = [threading.Thread(target=lambda c=c, i=i: got.update({i: nccl.sum(c, [i + 1])}))
               for i, c in enumerate(comms)]
    [t.start() for t in threads]; [t.join() for t in threads]
    print(json.dumps([live, [got[i] for i in range(3)]]))
    """
    assert start(code).end() == [0, [[6], [6], [6]]]


def test_closing_waits_for_calls_that_are_under_way(start) -> None:
    """Threads that work all the time: never does NCCL get a communicator that is gone."""
    code = """
    comms = [nccl.comm() for _ in range(4)]
    fault("slow")
    slow = threading.Thread(target=nccl.sum, args=(comms[0], [1])); slow.start(); time.sleep(0.05)
    begin = time.monotonic(); bridge.close(); waited = time.monotonic() - begin
    slow.join(); fault(""); bridge.rebuild()
    end = time.monotonic() + 2; refused = [0] * 4; done = [0] * 4; wrong = []
    def work(i):
        while time.monotonic() < end:
            got = nccl.sum(comms[i], [i])
            if got == 5: refused[i] += 1
            elif got == [i]: done[i] += 1
            else: wrong.append(got)
    def watch():
        error = ctypes.c_int()
        while time.monotonic() < end:
            code = nccl.lib.ncclCommGetAsyncError(comms[0], ctypes.byref(error))
            if code or error.value: wrong.append(["watchdog", code, error.value])
    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    threads.append(threading.Thread(target=watch))
    [t.start() for t in threads]
    turns = 0
    while time.monotonic() < end - 0.2:
        bridge.close(); time.sleep(0.002); bridge.rebuild(); time.sleep(0.002); turns += 1
    [t.join() for t in threads]
    print(json.dumps([waited, turns, min(done), sum(refused), wrong]))
    """
    waited, turns, done, refused, wrong = start(code).end()
    assert waited > 0.1
    assert turns > 20
    assert done > 100
    assert refused > 0
    assert wrong == []


@pytest.mark.parametrize("preload", [True, False])
def test_without_the_switch_nothing_is_different(start, preload) -> None:
    code = """
    comm = nccl.comm()
    magic = ctypes.cast(comm, ctypes.POINTER(ctypes.c_ulong))[0]
    off = failing(bridge.close) if bridge else None
    print(json.dumps([magic, nccl.sum(comm, [1]), nccl.lib.ncclCommDestroy(comm), off]))
    """
    magic, got, destroyed, off = start(code, on=False, preload=preload).end()
    assert magic == 0x0280028
    assert (got, destroyed) == ([1], 0)
    if preload:
        assert off[0] == "nccl.off"
        assert "COLDSNAP_NCCL_BRIDGE=on" in off[1]


def test_a_second_libnccl_is_refused(start, built, tmp_path) -> None:
    copy = tmp_path / "libnccl.so.2"
    copy.write_bytes((built / "libnccl.so.2").read_bytes())
    code = f"""
    comm = nccl.comm()
    second = Nccl({str(copy)!r})
    other = second.comm()
    print(json.dumps([failing(bridge.close), second.sum(other, [2])]))
    """
    error, got = start(code).end()
    assert error[0] == "nccl.refused"
    assert "makes communicators too" in error[1]
    assert got == [2]


def test_as_the_worker_of_vllm_does_it(start, tmp_path) -> None:
    code = (
        RANK
        + """
from coldsnap_inside_vllm import communicators
closed = communicators.close(graphs_dropped=False)
refused = nccl.sum(one, [1])
made = communicators.rebuild(str(store / "meet")), communicators.rebuild(str(store / "meet"))
again = communicators.close(graphs_dropped=True), communicators.rebuild(str(store / "meet"))
print(json.dumps([closed, refused, made, again, nccl.sum(child, [rank + 1])]))
"""
    )
    first, second = [start(code, RANK=str(rank)) for rank in (0, 1)]
    assert first.end() == second.end() == [3, 5, [3, 0], [3, 3], [3]]
    off = "from coldsnap_inside_vllm import communicators as c\n"
    off += "print(json.dumps([c.close(graphs_dropped=False), c.rebuild('/nowhere/x')]))"
    assert start(off, on=False).end() == [None, 0]


LINKED = r"""
#include <dlfcn.h>
#include <stdio.h>
typedef struct { char internal[128]; } ncclUniqueId;
typedef void *ncclComm_t;
int ncclGetUniqueId(ncclUniqueId *); int ncclCommInitRank(ncclComm_t *, int, ncclUniqueId, int);
int ncclAllReduce(const void *, void *, size_t, int, int, ncclComm_t, void *);
int ncclCommDestroy(ncclComm_t);
int coldsnap_nccl_close(unsigned, double) __attribute__((weak));
int coldsnap_nccl_rebuild(void *, double) __attribute__((weak));
/* The caller's own place in the order of libraries decides this answer. */
int puts(const char *text) { (void)text; return 77; }
int main(void) {
  ncclUniqueId id; ncclComm_t comm; int one = 1, got = 0;
  int (*next)(const char *) = (int (*)(const char *))dlsym(RTLD_NEXT, "puts");
  int (*first)(const char *) = (int (*)(const char *))dlsym(RTLD_DEFAULT, "puts");
  if (next == puts || first != puts || !next) return 2;
  if (dlsym(RTLD_DEFAULT, "ncclCommShrink") != NULL) return 3; /* this libnccl has none */
  if (dlsym(RTLD_DEFAULT, "ncclAllReduce") == NULL) return 4;
  ncclGetUniqueId(&id);
  if (ncclCommInitRank(&comm, 1, id, 0)) return 5;
  if (coldsnap_nccl_close(0, 5.0) || coldsnap_nccl_rebuild(0, 5.0)) return 6;
  if (ncclAllReduce(&one, &got, 1, 2, 0, comm, 0) || got != 1) return 7;
  return ncclCommDestroy(comm) ? 8 : 0;
}
"""


def test_a_program_that_is_linked_to_libnccl(built, bridge_library, tmp_path) -> None:
    """As torch is; and dlsym still knows who asks."""
    source, program = tmp_path / "linked.c", tmp_path / "linked"
    source.write_text(LINKED)
    subprocess.run(
        [
            "cc", "-O1", "-D_GNU_SOURCE", "-rdynamic", str(source), "-o", str(program),
            str(built / "libnccl.so.2"), f"-Wl,-rpath,{built}", "-ldl",
        ],
        check=True,
    )  # fmt: skip
    done = subprocess.run(
        [str(program)],
        env={
            "LD_PRELOAD": str(bridge_library), "COLDSNAP_NCCL_BRIDGE": "on",
            "FAKE_NCCL_DIR": str(tmp_path),
        },
        check=False, timeout=30,
    )  # fmt: skip
    assert done.returncode == 0


def test_real_nccl_of_one_rank(bridge_library) -> None:
    python = os.environ.get("COLDSNAP_GPU_PYTHON")
    if not python:
        pytest.skip("COLDSNAP_GPU_PYTHON names no interpreter with torch on a machine with a GPU")
    root = Path(__file__).parents[3]
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    done = subprocess.run(
        [python, str(Path(__file__).with_name("real_nccl.py")), str(port)],
        env={
            **os.environ, "LD_PRELOAD": str(bridge_library), "COLDSNAP_NCCL_BRIDGE": "on",
            "PYTHONPATH": f"{root}:{root / 'runtime'}",
            "TORCH_NCCL_ENABLE_MONITORING": "0", "NCCL_NVLS_ENABLE": "0",
        },
        capture_output=True, text=True, check=False, timeout=200,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["before"] == [True, True]
    assert found["turns"] == [[5, True, True]] * 3
    assert found["graph"]
    assert found["graph again"]
    assert found["destroyed"] == [0, 4]
    assert found["left"] == 0


@pytest.mark.parametrize("kind", ["address,undefined", "thread"])
def test_under_sanitizers(tmp_path, kind) -> None:
    """The bridge and the libnccl without devices in one program, many threads, many turns."""
    root = Path(__file__).parents[3] / "native" / "bridge"
    program = tmp_path / "turns"
    sources = sorted(str(path) for path in (root / "src").glob("*.c") if path.name != "real.c")
    built = subprocess.run(
        [
            "cc", "-std=gnu11", "-g", "-O1", f"-fsanitize={kind}", "-fno-sanitize-recover=all",
            "-D_GNU_SOURCE", f"-I{root}/include", f"-I{root}/src", *sources,
            str(root / "tests" / "turns.c"), "-o", str(program), "-pthread", "-ldl",
        ],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert built.returncode == 0, built.stderr
    done = subprocess.run(
        [str(program)], env={"COLDSNAP_NCCL_BRIDGE": "on", "PATH": "/usr/bin:/bin"},
        capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    if "unexpected memory mapping" in done.stderr:
        pytest.skip("this kernel's address layout is not what ThreadSanitizer expects")
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.startswith("turns ")
    assert sys.platform == "linux"
