"""The processes of a unit, by their numbers inside it, read through the unit's own /proc."""

from __future__ import annotations

import itertools
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_FIRST_PID = 300
"""The kernel never starts again below this."""
_ROOM = 1000
"""Numbers that must be free for CRIU's own processes and for what the engine starts next."""
_PAGE = os.sysconf("SC_PAGE_SIZE")
_DELETED = " (deleted)"
_WORDS_WITH_PATH = 6
"""range, permissions, offset, device, inode, path"""


@dataclass(frozen=True)
class UnitProcess:
    pid: int
    """Inside the unit."""
    parent: int
    name: str
    rss_bytes: int
    threads: int
    command: tuple[str, ...]


@dataclass(frozen=True)
class FileUse:
    """A regular file that a process has mapped or open, by its path inside the unit."""

    path: str
    status: os.stat_result
    is_written: bool = False
    """Open for writing."""
    is_read: bool = True
    """Mapped, or open for reading."""
    flags: int = 0
    is_deleted: bool = False


def proc_of(init_pid: int) -> Path:
    """The unit's /proc as the host reaches it."""
    return Path(f"/proc/{init_pid}/root/proc")


def processes(init_pid: int, root_pid: int) -> list[UnitProcess]:
    """The dump root and everything below it, parents first.

    What only visits the unit (CRIU, a shell that was entered) is not below the root.
    """
    proc = proc_of(init_pid)
    every = {p.pid: p for p in (_process(proc / name) for name in _numbers(proc)) if p}
    tree = [every[root_pid]] if root_pid in every else []
    for parent in tree:  # grows while it is walked
        tree += sorted((p for p in every.values() if p.parent == parent.pid), key=lambda p: p.pid)
    return tree


def pid_max() -> int:
    """Process numbers of this host stay below it."""
    return int(Path("/proc/sys/kernel/pid_max").read_text())


def last_pid(init_pid: int, pid_max: int) -> int:
    """The number after which those that are given out next do not meet any that is in use.

    Normally the highest in use (threads, groups and sessions included). Numbers start again at
    300 when they are used up: then the one before the widest gap.
    """
    proc = proc_of(init_pid)
    used = {_FIRST_PID - 1}
    for name in _numbers(proc):
        used |= {int(task) for task in _numbers(proc / name / "task")}
        used |= set(_group_and_session(proc / name))
    return _before_gap(sorted(used), pid_max)


def _before_gap(used: list[int], pid_max: int) -> int:
    if used[-1] + _ROOM < pid_max:
        return used[-1]
    high = [pid for pid in used if pid >= _FIRST_PID - 1]
    gaps = [(after - before, before) for before, after in itertools.pairwise(high)]
    return max(gaps, default=(0, used[-1]))[1]


def file_uses(init_pid: int, pid: int) -> Iterator[FileUse]:
    """Regular files that process `pid` (inside) has mapped or open; may repeat a file."""
    folder = proc_of(init_pid) / str(pid)
    yield from _mapped(folder)
    yield from _opened(folder)


def holders(init_pid: int, root_pid: int, kind: str) -> list[UnitProcess]:
    """Processes that hold a descriptor whose name contains `kind` (``io_uring``)."""
    proc = proc_of(init_pid)
    return [
        process
        for process in processes(init_pid, root_pid)
        if any(kind in target for _, target in _links(proc / str(process.pid) / "fd"))
    ]


def mentions(maps: Path, text: str) -> bool:
    """Whether a process has something of that name mapped; False for one that has ended."""
    try:
        return text.encode() in maps.read_bytes()
    except OSError:
        return False


def open_paths(pid: int) -> list[str]:
    """What the descriptors of process `pid` (on the host) lead to."""
    return [target for _, target in _links(Path(f"/proc/{pid}/fd"))]


def working_folder(init_pid: int, pid: int) -> str:
    return os.readlink(proc_of(init_pid) / str(pid) / "cwd")


def socket_inodes(init_pid: int, pids: list[int]) -> set[int]:
    """Inode numbers of all sockets that the given processes (inside) hold."""
    found: set[int] = set()
    for pid in pids:
        for _, target in _links(proc_of(init_pid) / str(pid) / "fd"):
            if target.startswith("socket:["):
                found.add(int(target[8:-1]))
    return found


def _process(folder: Path) -> UnitProcess | None:
    try:
        name, _, rest = (folder / "stat").read_bytes().partition(b"(")[2].rpartition(b") ")
        words = rest.split()
        command = (folder / "cmdline").read_bytes().rstrip(b"\0").split(b"\0")
    except OSError:
        return None
    return UnitProcess(
        pid=int(folder.name),
        parent=int(words[1]),
        name=name.decode("utf-8", "replace"),
        rss_bytes=int(words[21]) * _PAGE,
        threads=int(words[17]),
        command=tuple(word.decode("utf-8", "replace") for word in command),
    )


def _group_and_session(folder: Path) -> list[int]:
    try:
        words = (folder / "stat").read_bytes().rpartition(b") ")[2].split()
    except OSError:
        return []
    return [int(words[2]), int(words[3])]


def _mapped(folder: Path) -> Iterator[FileUse]:
    seen: set[str] = set()
    try:
        lines = (folder / "maps").read_bytes().splitlines()
    except OSError:
        return
    for line in lines:
        words = line.decode("utf-8", "surrogateescape").split(None, 5)
        if len(words) < _WORDS_WITH_PATH or words[4] == "0" or words[5] in seen:
            continue
        seen.add(words[5])
        # The link, not the path: a file may have been replaced under its name.
        link = folder / "map_files" / _range(words[0])
        use = _use(link, words[5], flags=os.O_RDONLY)
        if use is not None:
            yield use


def _range(text: str) -> str:
    """map_files names have no leading zeros, maps lines have."""
    start, _, end = text.partition("-")
    return f"{int(start, 16):x}-{int(end, 16):x}"


def _opened(folder: Path) -> Iterator[FileUse]:
    for number, target in _links(folder / "fd"):
        if not target.startswith("/"):
            continue
        use = _use(folder / "fd" / number, target, _flags(folder / "fdinfo" / number))
        if use is not None:
            yield use


def _use(link: Path, path: str, flags: int) -> FileUse | None:
    try:
        status = link.stat()
    except OSError:
        return None
    if not stat.S_ISREG(status.st_mode):
        return None
    access = flags & os.O_ACCMODE
    return FileUse(
        path=path.removesuffix(_DELETED),
        status=status,
        is_written=access != os.O_RDONLY,
        is_read=access != os.O_WRONLY,
        flags=flags,
        is_deleted=path.endswith(_DELETED),
    )


def _flags(fdinfo: Path) -> int:
    try:
        for line in fdinfo.read_text().splitlines():
            if line.startswith("flags:"):
                return int(line.split()[1], 8)
    except OSError:
        pass
    return os.O_RDONLY


def _links(folder: Path) -> Iterator[tuple[str, str]]:
    try:
        names = os.listdir(folder)
    except OSError:
        return
    for name in names:
        try:
            yield name, os.readlink(folder / name)
        except OSError:
            continue


def _numbers(folder: Path) -> list[str]:
    try:
        return [name for name in os.listdir(folder) if name.isdigit()]
    except OSError:
        return []
