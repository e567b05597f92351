"""All processes of an image: their areas, pages, and the addresses that the kernel writes to."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from coldsnap_runtime.process_image.image_errors import damaged, unsupported
from coldsnap_runtime.process_image.image_file import read_messages, read_one_message
from coldsnap_runtime.process_image.image_messages import image_messages, text_of
from coldsnap_runtime.process_image.memory_areas import PAGE, Area, Range, read_areas
from coldsnap_runtime.process_image.page_map import PageMap, Run, read_page_map, runs_by_area

_VERSION: Final = 2
"""Of the image format (1.1), since CRIU 2.0."""
_MOST_PROCESSES: Final = 4096
_MOST_THREADS: Final = 1 << 16
_MOST_PID: Final = 1 << 22
_X86_64, _AARCH64 = 1, 3
_NATIVE: Final = 1
"""Mode of the registers of a 64-bit thread."""
_DEAD: Final = (2, 6)
"""States of a process that has ended: dead, zombie."""


@dataclass(frozen=True)
class Process:
    pid: int
    """Inside the unit, as are all numbers of an image."""
    parent: int
    name: str
    mm: Any
    areas: tuple[Area, ...]
    guards: tuple[Range, ...]
    pages: PageMap
    hot: tuple[int, ...]
    """Addresses that the kernel or CRIU's restorer writes to on their own: stacks, TLS, rseq."""
    stacks: tuple[int, ...]
    """Stack pointers of the threads."""

    @cached_property
    def runs(self) -> list[list[Run]]:
        """Of each area."""
        return runs_by_area(f"pagemap-{self.pid}.img", self.pages.runs, self.areas)


@dataclass(frozen=True)
class ProcessImage:
    folder: Path
    processes: tuple[Process, ...]
    """By number."""


def read_process_image(folder: Path) -> ProcessImage:
    """Everything about memory in the images in `folder`.

    Raises:
        ColdSnapError: ``image.damaged``, ``image.unsupported``.
    """
    if os.sysconf("SC_PAGE_SIZE") != PAGE:
        raise unsupported("pages of this machine are not of 4096 bytes")
    if os.path.lexists(folder / "parent"):
        raise unsupported("it needs a parent image (in_parent)")
    classes = image_messages()
    inventory = read_one_message(folder, "inventory.img", "INVENTORY", classes.inventory)
    if inventory.img_version != _VERSION:
        raise unsupported(f"its version is {inventory.img_version}, not {_VERSION}")
    tree = read_messages(folder, "pstree.img", "PSTREE", classes.pstree)
    if len(tree) > _MOST_PROCESSES or sum(len(item.threads) for item in tree) > _MOST_THREADS:
        raise unsupported("there are too many processes or threads")
    pids = [item.pid for item in tree]
    if len(set(pids)) != len(pids) or not all(0 < pid < _MOST_PID for pid in pids):
        raise damaged("pstree.img", "process numbers that cannot be")
    processes = tuple(_processes(folder, sorted(tree, key=lambda item: int(item.pid))))
    _check_pages_files(folder, processes)
    return ProcessImage(folder, processes)


def _check_pages_files(folder: Path, processes: tuple[Process, ...]) -> None:
    """Each pages file belongs to one page map: a process's, or one of shared memory."""
    ids = [process.pages.pages_id for process in processes]
    known = {f"pagemap-{process.pid}.img" for process in processes}
    others = [name for name in os.listdir(folder) if name.startswith("pagemap-")]
    ids += [read_page_map(folder, name).pages_id for name in sorted(set(others) - known)]
    if len(set(ids)) != len(ids):
        raise damaged("pagemap-*.img", "two of them have one pages file")


def _processes(folder: Path, tree: list[Any]) -> Iterator[Process]:
    for item in tree:
        name = f"core-{item.pid}.img"
        core = read_one_message(folder, name, "CORE", image_messages().core)
        if not core.HasField("tc"):
            raise damaged(name, "it is not of a process")
        if core.tc.task_state in _DEAD:
            continue
        yield _process(folder, item, core)


def _process(folder: Path, item: Any, core: Any) -> Process:
    name = f"mm-{item.pid}.img"
    mm = read_one_message(folder, name, "MM", image_messages().mm)
    areas, guards = read_areas(name, mm.vmas)
    threads = list(_threads(folder, item))
    return Process(
        pid=item.pid,
        parent=item.ppid,
        name=text_of(core.tc.comm)[:64],
        mm=mm,
        areas=areas,
        guards=guards,
        pages=read_page_map(folder, f"pagemap-{item.pid}.img"),
        hot=tuple(sorted({address for thread in threads for address in thread if address})),
        stacks=tuple(stack for stack, *_ in threads),
    )


def _threads(folder: Path, item: Any) -> Iterator[tuple[int, ...]]:
    """Of each thread its stack pointer, then the other addresses; 0 for what it has not."""
    if item.pid not in item.threads:
        raise damaged("pstree.img", f"process {item.pid} is none of its threads")
    for thread in item.threads:
        if not 0 < thread < _MOST_PID:
            raise damaged("pstree.img", f"thread {thread}")
        name = f"core-{thread}.img"
        core = read_one_message(folder, name, "CORE", image_messages().core)
        if not core.HasField("thread_core"):
            raise damaged(name, "it is not of a thread")
        yield (*_registers(name, core), *_kept_for_the_kernel(core.thread_core))


def _registers(name: str, core: Any) -> tuple[int, ...]:
    if core.mtype == _X86_64 and core.HasField("thread_info"):
        thread, registers = core.thread_info, core.thread_info.gpregs
        if registers.mode != _NATIVE:
            raise unsupported(f"{name} is of a 32-bit program")
        return registers.sp, registers.fs_base, registers.gs_base, thread.clear_tid_addr
    if core.mtype == _AARCH64 and core.HasField("ti_aarch64"):
        thread = core.ti_aarch64
        return thread.gpregs.sp, thread.tls, thread.clear_tid_addr
    raise unsupported(f"{name} is of another architecture ({core.mtype})")


def _kept_for_the_kernel(thread: Any) -> tuple[int, ...]:
    """Its list of robust mutexes, rseq, and the signal stack: its ends and its middle."""
    signals = thread.sas
    ends = (signals.ss_sp + signals.ss_size // 2, signals.ss_sp + signals.ss_size - 1)
    return (
        thread.futex_rla,
        thread.rseq_entry.rseq_abi_pointer,
        *((signals.ss_sp, *ends) if signals.ss_sp and signals.ss_size else ()),
    )
