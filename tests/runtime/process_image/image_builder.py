"""Small process images, written with pycriu's classes, and what a restore would make of them."""

from __future__ import annotations

import importlib
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

PAGE = 4096
BASE = 0x7F00_0000_0000
PLAIN = {"prot": 3, "flags": 0x22, "status": 0x201}
IMAGES = "/run/coldsnap/image/"


@dataclass
class Vma:
    start: int
    pages: int
    dumped: tuple[tuple[int, int], ...] = ()
    """(first page, number of pages)"""
    prot: int = 3
    flags: int = 0x22
    status: int = 0x201
    madv: int | None = None
    shmid: int = 0

    @property
    def end(self) -> int:
        return self.start + self.pages * PAGE


@dataclass
class Proc:
    pid: int
    vmas: list[Vma]
    ppid: int = 0
    hot: dict[str, int] = field(default_factory=dict)
    """Registers and pointers of its thread: sp, fs_base, clear_tid_addr, futex_rla, rseq, sas."""
    salt: int = 0
    """Pages with the same salt at the same address are equal."""
    guards: tuple[tuple[int, int], ...] = ()


def messages(name: str) -> Any:
    return importlib.import_module(f"pycriu.images.{name}_pb2")


def magic(name: str) -> int:
    return int(importlib.import_module("pycriu.images.magic").by_name[name])


def write_image(folder: Path, kind: str, *found: Any) -> None:
    """The file named by `kind`'s usual name is the caller's: ``mm-1.img:MM``."""
    name, _, word = kind.partition(":")
    words = [magic(word)] if word == "INVENTORY" else [magic("IMG_COMMON"), magic(word)]
    parts = [struct.pack("<I", value) for value in words]
    for message in found:
        body = message.SerializeToString()
        parts += [struct.pack("<I", len(body)), body]
    (folder / name).write_bytes(b"".join(parts))


def read_image(path: Path, *types: Any) -> list[Any]:
    data = path.read_bytes()
    at, found = 8, []
    while at < len(data):
        (size,) = struct.unpack_from("<I", data, at)
        message = types[min(len(found), len(types) - 1)]()
        message.ParseFromString(data[at + 4 : at + 4 + size])
        found.append(message)
        at += 4 + size
    return found


def minimal(kind: Any) -> Any:
    """A message with every required field set to nothing."""
    message = kind()
    for row in kind.DESCRIPTOR.fields:
        if not row.is_required:
            continue
        if row.message_type is not None:
            getattr(message, row.name).CopyFrom(minimal(type(getattr(message, row.name))))
        elif row.type == row.TYPE_STRING:
            setattr(message, row.name, "")
        elif row.type == row.TYPE_BYTES:
            setattr(message, row.name, b"")
        else:
            setattr(message, row.name, 0)
    return message


def content(address: int, salt: int) -> bytes:
    return struct.pack("<QQ", address, salt) * (PAGE // 16)


def dumped(proc: Proc) -> Iterator[int]:
    """Addresses of dumped pages, in order."""
    for vma in proc.vmas:
        for first, count in vma.dumped:
            for page in range(first, first + count):
                yield vma.start + page * PAGE


def build(folder: Path, procs: list[Proc]) -> Path:
    folder.mkdir(exist_ok=True)
    inventory = minimal(messages("inventory").inventory_entry)
    inventory.img_version = 2
    write_image(folder, "inventory.img:INVENTORY", inventory)
    tree = []
    for number, proc in enumerate(procs, 1):
        item = minimal(messages("pstree").pstree_entry)
        item.pid, item.ppid = proc.pid, proc.ppid
        item.threads.append(proc.pid)
        tree.append(item)
        write_image(folder, f"core-{proc.pid}.img:CORE", _core(proc))
        write_image(folder, f"mm-{proc.pid}.img:MM", _mm(proc))
        _write_pages(folder, proc, number)
    write_image(folder, "pstree.img:PSTREE", *tree)
    write_image(folder, "files.img:FILES", _file(1, "/usr/bin/engine"), _file(7, "/usr/lib/x.so"))
    return folder


def _core(proc: Proc) -> Any:
    core = messages("core").core_entry(mtype=1)
    core.thread_info.CopyFrom(minimal(type(core.thread_info)))
    core.tc.CopyFrom(minimal(type(core.tc)))
    core.tc.task_state, core.tc.comm = 1, f"proc{proc.pid}"
    core.thread_core.CopyFrom(minimal(type(core.thread_core)))
    hot = proc.hot
    core.thread_info.gpregs.sp = hot.get("sp", 0)
    core.thread_info.gpregs.fs_base = hot.get("fs_base", 0)
    core.thread_info.clear_tid_addr = hot.get("clear_tid_addr", 0)
    core.thread_core.futex_rla = hot.get("futex_rla", 0)
    if "rseq" in hot:
        core.thread_core.rseq_entry.CopyFrom(minimal(type(core.thread_core.rseq_entry)))
        core.thread_core.rseq_entry.rseq_abi_pointer = hot["rseq"]
    if "sas" in hot:
        core.thread_core.sas.CopyFrom(minimal(type(core.thread_core.sas)))
        core.thread_core.sas.ss_sp, core.thread_core.sas.ss_size = hot["sas"], 8192
    return core


def _mm(proc: Proc) -> Any:
    mm = minimal(messages("mm").mm_entry)
    mm.exe_file_id = 1
    for vma in proc.vmas:
        _add_vma(mm, vma.start, vma.end, vma)
    for start, end in proc.guards:
        _add_vma(mm, start, end, Vma(start, 0, status=1 << 16, prot=0, flags=0))
    return mm


def _add_vma(mm: Any, start: int, end: int, vma: Vma) -> None:
    entry = mm.vmas.add(start=start, end=end, pgoff=0, shmid=vma.shmid, fd=-1)
    entry.prot, entry.flags, entry.status = vma.prot, vma.flags, vma.status
    if vma.madv is not None:
        entry.madv = vma.madv


def _write_pages(folder: Path, proc: Proc, number: int) -> None:
    pagemap = messages("pagemap")
    entries, last = [], None
    with (folder / f"pages-{number}.img").open("wb") as file:
        for address in dumped(proc):
            file.write(content(address, proc.salt))
            if last is not None and last.vaddr + last.nr_pages * PAGE == address:
                last.nr_pages += 1
            else:
                last = entry_of_pagemap(address, 1, 4 | len(entries) % 2 * 2)
                entries.append(last)
    head = pagemap.pagemap_head(pages_id=number)
    write_image(folder, f"pagemap-{proc.pid}.img:PAGEMAP", head, *entries)


def entry_of_pagemap(address: int, pages: int, flags: int = 4) -> Any:
    kind = messages("pagemap").pagemap_entry
    old = {"compat_nr_pages": 0} if "compat_nr_pages" in kind.DESCRIPTOR.fields_by_name else {}
    return kind(vaddr=address, nr_pages=pages, flags=flags, **old)


def _file(number: int, name: str) -> Any:
    entry = messages("fdinfo").file_entry(type=1, id=number)
    entry.reg.CopyFrom(minimal(type(entry.reg)))
    entry.reg.id, entry.reg.name = number, name
    return entry


@dataclass
class Restored:
    """What memory a restore makes: by CRIU from the overlaid page map, and by the rung."""

    by_criu: dict[int, bytes] = field(default_factory=dict)
    by_rung: dict[int, bytes] = field(default_factory=dict)
    vmas: list[Any] = field(default_factory=list)


def restore(images: Path, overlay: Path, pid: int) -> Restored:
    """As CRIU and the rung would: pages by address. Nothing of the product takes part."""

    def over(name: str) -> Path:
        return overlay / name if (overlay / name).exists() else images / name

    found = Restored()
    pagemap = messages("pagemap")
    head, *entries = read_image(
        over(f"pagemap-{pid}.img"), pagemap.pagemap_head, pagemap.pagemap_entry
    )
    data = over(f"pages-{head.pages_id}.img").read_bytes()
    at = 0
    for entry in entries:
        for page in range(entry.nr_pages):
            found.by_criu[entry.vaddr + page * PAGE] = data[at : at + PAGE]
            at += PAGE
    assert at == len(data)
    (mm,) = read_image(over(f"mm-{pid}.img"), messages("mm").mm_entry)
    found.vmas = list(mm.vmas)
    files = read_image(over("files.img"), messages("fdinfo").file_entry)
    names = {entry.id: entry.reg for entry in files}
    for vma in mm.vmas:
        file = names.get(vma.shmid)
        if not vma.status & 0x40 or file is None or not file.name.startswith(IMAGES):
            continue
        path = images / file.name.removeprefix(IMAGES)
        assert path.stat().st_size == file.size
        assert not vma.flags & 0x20
        _take(found.by_rung, path, vma.start, vma.pgoff, vma.end - vma.start)
    return found


def fill(images: Path, overlay: Path, pid: int, found: Restored) -> None:
    """What coldsnap-fill would write, by the format's description in docs/formats.md."""
    data = (overlay / "fill.index").read_bytes()
    magic_word, files, processes, areas, runs, chunks = struct.unpack_from("<8s5I", data)
    assert magic_word == b"CSFILL01"
    at = 48
    names = [data[at + i * 72 + 8 : at + i * 72 + 72].rstrip(b"\0").decode() for i in range(files)]
    at += files * 72
    pids = [struct.unpack_from("<I", data, at + i * 8)[0] for i in range(processes)]
    at += processes * 8 + areas * 24
    for number in range(runs):
        process, file, address, size, offset, _ = struct.unpack_from(
            "<2I4Q", data, at + number * 40
        )
        if pids[process] == pid:
            _take(found.by_rung, images / names[file], address, offset, size)
    assert at + runs * 40 + 32 * (chunks + 1) == len(data)


def _take(pages: dict[int, bytes], path: Path, address: int, offset: int, size: int) -> None:
    with path.open("rb") as file:
        file.seek(offset)
        data = file.read(size)
    assert len(data) == size
    for at in range(0, size, PAGE):
        assert address + at not in pages
        pages[address + at] = data[at : at + PAGE]
