"""coldsnap-unit from the outside: its modes, its exit statuses, what it says when it cannot."""

from __future__ import annotations

import os
import signal
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest
from waiting import wait_for

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="namespaces need root")


@dataclass
class Unit:
    report: list[str]
    status: Path

    @property
    def pid(self) -> int:
        return int(self.report[0].removeprefix("init "))

    def wait_end(self) -> str:
        return wait_for(self.status.read_text, "the unit to end").strip()


class Starter:
    def __init__(self, program: Path, folder: Path) -> None:
        self.program = program
        self.folder = folder
        self.units: list[Unit] = []

    def start(self, *options: str, root: tuple[str, ...] = (), last: int = 999) -> Unit:
        reading, writing = os.pipe()
        status = self.folder / f"status{len(self.units)}"
        with status.open("w") as file:
            argv = [str(self.program), "start", "--report", str(writing)]
            argv += ["--status", str(file.fileno()), "--network", "private"]
            argv += ["--root-pid", "1000", "--last-pid", str(last), *options]
            argv += ["--", *root] if root else []
            subprocess.run(argv, pass_fds=(writing, file.fileno()), check=False, timeout=20)
        os.close(writing)
        with os.fdopen(reading) as report:
            unit = Unit(report.read().splitlines(), status)
        self.units.append(unit)
        return unit

    def supervised(self, *command: str, options: tuple[str, ...] = ()) -> Unit:
        log = str(self.folder / "log")
        root = (str(self.program), "supervise", "--log", log, "--cwd", "/", *options)
        return self.start(root=(*root, "--", *command))

    def enter(self, unit: Unit, *command: str) -> subprocess.CompletedProcess[str]:
        argv = [str(self.program), "enter", str(unit.pid), "--", *command]
        return subprocess.run(argv, capture_output=True, text=True, check=False, timeout=20)

    @property
    def log(self) -> str:
        return (self.folder / "log").read_text()


@pytest.fixture
def starter(programs: Path, tmp_path: Path):
    starter = Starter(programs / "coldsnap-unit", tmp_path)
    yield starter
    for unit in starter.units:
        if unit.report[0].startswith("init "):
            os.kill(unit.pid, signal.SIGKILL)


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("dance",),
        ("start", "--report", "3"),
        ("start", "--report", "1", "--root-pid", "1000", "--last-pid", "999"),
        ("start", "--report", "3", "--root-pid", "1000", "--last-pid", "5", "--", "/bin/true"),
        ("start", "--report", "3", "--root-pid", "0x10", "--last-pid", "999"),
        ("start", "--report", "3", "--network", "bridged"),
        ("start", "--bind", "relative"),
        ("supervise", "--log", "/dev/null", "--", "/bin/true"),
        ("enter", "-1", "--", "true"),
        ("enter", "12", "true"),
    ],
)
def test_bad_words_are_refused(programs: Path, arguments: tuple[str, ...]) -> None:
    done = subprocess.run(
        [programs / "coldsnap-unit", *arguments], capture_output=True, check=False
    )
    assert done.returncode == 64


@needs_root
def test_the_root_gets_its_number_and_a_clean_place(starter: Starter) -> None:
    unit = starter.supervised("/bin/sh", "-c", "echo $PPID $$; ls /proc/self/fd; sleep 60")
    assert unit.report[1] == "ready"
    inside = starter.enter(unit, "sh", "-c", "cat /proc/1000/stat; ls /proc/1000/fd; hostname")
    assert inside.stdout.split()[:4] == ["1000", "(coldsnap-unit)", "S", "1"]
    assert inside.stdout.split("\n")[1:4] == ["0", "1", "2"], "no descriptor leaked in"
    _wait_for(starter, "1000 1001\n")
    own = starter.enter(unit, "cat", "/proc/net/dev").stdout
    assert [line.split(":")[0].strip() for line in own.splitlines()[2:]] == ["lo"]


def _wait_for(starter: Starter, text: str) -> None:
    log = starter.folder / "log"
    wait_for(lambda: log.exists() and starter.log.startswith(text), "the log")


@needs_root
@pytest.mark.parametrize(
    ("command", "status"),
    [
        (("/bin/sh", "-c", "exit 7"), "exited 7"),
        (("/bin/sh", "-c", "kill -SEGV $$"), "exited 139"),
        (("/nowhere",), "exited 127"),
        (("/etc/passwd",), "exited 126"),
    ],
)
def test_the_end_of_the_engine_is_told(
    starter: Starter, command: tuple[str, ...], status: str
) -> None:
    assert starter.supervised(*command).wait_end() == status


@needs_root
def test_orphans_are_reaped_and_die_with_the_engine(starter: Starter) -> None:
    script = "(sleep 600 &); (true &); sleep 600"
    unit = starter.supervised("/bin/sh", "-c", script)

    def is_reaped() -> bool:
        processes = starter.enter(unit, "ps", "-eo", "stat,args").stdout
        has_zombies = any(line.startswith("Z") for line in processes.splitlines())
        return processes.count("sleep 600") > 1 and not has_zombies

    wait_for(is_reaped, "the orphan to be reaped, the other one to run")
    namespace = Path(f"/proc/{unit.pid}/ns/pid").readlink()
    os.kill(unit.pid, signal.SIGKILL)
    wait_for(lambda: namespace not in _namespaces(), "all of its processes to end")


def _namespaces() -> set[Path]:
    found = set()
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if (folder / "stat").read_text().rpartition(")")[2].split()[0] != "Z":
                found.add((folder / "ns" / "pid").readlink())
        except OSError:
            continue
    return found


@needs_root
def test_term_reaches_the_engine(starter: Starter) -> None:
    script = "trap 'echo bye; exit 3' TERM; echo up; while :; do sleep 0.05; done"
    unit = starter.supervised("/bin/sh", "-c", script)
    _wait_for(starter, "up\n")
    os.kill(unit.pid, signal.SIGTERM)
    assert unit.wait_end() == "exited 3"
    assert starter.log == "up\nbye\n"


@needs_root
def test_io_uring_answers_enosys(starter: Starter) -> None:
    script = "import ctypes; c = ctypes.CDLL(None, use_errno=True)\n"
    script += "print([(c.syscall(n, 8, 0), ctypes.get_errno()) for n in (425, 426, 427)])\n"
    script += "print(c.syscall(39) > 0)"
    starter.supervised("python3", "-c", script, options=("--deny-io-uring",)).wait_end()
    assert starter.log == "[(-1, 38), (-1, 38), (-1, 38)]\nTrue\n"


@needs_root
def test_mounts_are_private_and_read_only_where_asked(starter: Starter, tmp_path: Path) -> None:
    source = tmp_path / "source"
    (source / "deep").mkdir(parents=True)
    (source / "file").write_text("x")
    before = Path("/proc/self/mountinfo").read_text()
    unit = starter.start(
        *("--tmpfs", "size=1m,mode=755", "/dev/shm"),
        *("--bind-read-only", str(source), "/dev/shm/model"),
        *("--bind-read-only", str(source / "file"), "/dev/shm/a/b/file"),
        *("--bind", str(source / "deep"), "/tmp"),
    )
    assert unit.report[1] == "ready", unit.report
    script = "touch /dev/shm/model/x; cat /dev/shm/a/b/file; touch /tmp/new; : > /dev/shm/free"
    inside = starter.enter(unit, "sh", "-c", script)
    assert "Read-only file system" in inside.stderr
    assert inside.stderr.count("\n") == 1
    assert inside.stdout == "x"
    assert (source / "deep" / "new").exists()
    assert Path("/proc/self/mountinfo").read_text() == before
    assert not Path("/dev/shm/free").exists()


@needs_root
@pytest.mark.parametrize(
    ("options", "error"),
    [
        (("--bind", "/nowhere", "/tmp"), "error open /nowhere: No such file or directory"),
        (("--tmpfs", "size=nonsense", "/tmp"), "error tmpfs at /tmp: Invalid argument"),
        (("--bind", "/tmp", "/etc/passwd/x"), "error mount point /etc/passwd/x: Not a directory"),
    ],
)
def test_what_cannot_be_done_is_said(
    starter: Starter, options: tuple[str, ...], error: str
) -> None:
    assert starter.start(*options).report == [error]


@needs_root
def test_a_root_that_cannot_run_is_said(starter: Starter) -> None:
    unit = starter.start(root=("/nowhere/root",))
    assert unit.report == ["error run /nowhere/root: No such file or directory"]


@needs_root
def test_enter_ends_as_its_command(starter: Starter) -> None:
    unit = starter.supervised("sleep", "60")
    assert starter.enter(unit, "sh", "-c", "exit 9").returncode == 9
    assert starter.enter(unit, "sh", "-c", "kill -KILL $$").returncode == 137
    assert starter.enter(unit, "/nowhere").returncode == 127
    gone = starter.enter(Unit(["init 4194300"], unit.status), "true")
    assert gone.returncode == 125
    assert "No such file" in gone.stderr
