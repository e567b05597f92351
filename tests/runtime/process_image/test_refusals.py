"""What a rewrite does not know to be safe is refused by its name; the rest is damage."""

from __future__ import annotations

import os
import shutil
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from image_builder import BASE, PAGE, Proc, Vma, build, messages, read_image, write_image

from coldsnap.artifact.errors import ColdSnapError
from coldsnap_runtime.process_image import rewrite, sizes
from coldsnap_runtime.process_image.fill_index import read_fill_index

FULL = ((0, 300),)
Edit = Callable[[Any], None]


def image(place: Path, *vmas: Vma, **changes: Any) -> Path:
    return build(place / "images", [Proc(1000, list(vmas) or [Vma(BASE, 300, FULL)], **changes)])


def refusal(place: Path, images: Path, fill_program: Path) -> ColdSnapError:
    with pytest.raises(ColdSnapError) as caught:
        rewrite(images, place / "ext", "ext", fill_program)
    assert not (place / "ext").exists()
    return caught.value


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"status": 0x201 | 1 << 20}, "status bits 0x100000"),
        ({"status": 0x201 | 1 << 31}, "status bits 0x80000000"),
        ({"flags": 0x40022}, "hugetlb"),
        ({"flags": 0x80022}, "flags 0x80000"),
        ({"madv": 1 << 30}, "madvise bits 0x40000000"),
    ],
)
def test_unknown_bits_are_named(
    place: Path, fill_program: Path, changes: dict[str, int], named: str
) -> None:
    images = image(place, Vma(BASE, 300, FULL), Vma(BASE + (8 << 20), 1, **changes))
    error = refusal(place, images, fill_program)
    assert error.code == "image.unsupported"
    assert named in error.message
    assert f"{BASE + (8 << 20):#x}" in error.message


def edit(images: Path, name: str, word: str, types: list[Any], change: Edit) -> None:
    found = read_image(images / name, *types)
    for message in found:
        change(message)
    write_image(images, f"{name}:{word}", *found)


def of_pagemap(change: Edit) -> Callable[[Path], None]:
    def apply(images: Path) -> None:
        kinds = messages("pagemap")

        def only_entries(message: Any) -> None:
            if isinstance(message, kinds.pagemap_entry):
                change(message)

        types = [kinds.pagemap_head, kinds.pagemap_entry]
        edit(images, "pagemap-1000.img", "PAGEMAP", types, only_entries)

    return apply


def set_field(name: str, value: Any) -> Edit:
    return lambda message: setattr(message, name, value)


def claim_more_pages(entry: Any) -> None:
    """As many as the field can say: it had 32 bits before CRIU 4.2."""
    kind = type(entry).DESCRIPTOR.fields_by_name["nr_pages"]
    entry.nr_pages = 1 << 60 if kind.type == kind.TYPE_UINT64 else (1 << 32) - 1


def of_core(change: Edit) -> Callable[[Path], None]:
    return lambda images: edit(
        images, "core-1000.img", "CORE", [messages("core").core_entry], change
    )


def of_files(name: str) -> Callable[[Path], None]:
    def change(message: Any) -> None:
        message.reg.name = name

    return lambda images: edit(
        images, "files.img", "FILES", [messages("fdinfo").file_entry], change
    )


def a_newer_field(images: Path) -> None:
    path = images / "mm-1000.img"
    data = path.read_bytes()
    unknown = b"\xc0\x3e\x01"  # field 1000 is 1
    size = int.from_bytes(data[8:12], "little") + len(unknown)
    path.write_bytes(data[:8] + size.to_bytes(4, "little") + data[12:] + unknown)


def old_version(images: Path) -> None:
    inventory = messages("inventory").inventory_entry
    message = inventory()
    message.ParseFromString((images / "inventory.img").read_bytes()[8:])  # magic, length
    message.img_version = 1
    write_image(images, "inventory.img:INVENTORY", message)


@pytest.mark.parametrize(
    ("spoil", "named"),
    [
        (of_pagemap(set_field("in_parent", True)), "in_parent"),
        (of_pagemap(set_field("flags", 5)), "in_parent"),
        (of_pagemap(set_field("flags", 2)), "lazy"),
        (of_pagemap(set_field("flags", 0)), "absent"),
        (of_pagemap(set_field("flags", 12)), "flags 0x8"),
        (of_core(set_field("mtype", 4)), "architecture"),
        (of_core(lambda core: setattr(core.thread_info.gpregs, "mode", 2)), "32-bit"),
        (lambda images: (images / "parent").symlink_to(".."), "parent image"),
        (a_newer_field, "mm-1000.img has fields that this version does not know"),
        (old_version, "version is 1"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_is_not_known_to_be_safe(
    place: Path, fill_program: Path, spoil: Callable[[Path], None], named: str
) -> None:
    images = image(place)
    spoil(images)
    error = refusal(place, images, fill_program)
    assert error.code == "image.unsupported"
    assert named in error.message
    assert error.remedy


def test_memory_that_is_mapped_from_an_older_image(place: Path, fill_program: Path) -> None:
    images = image(place)
    of_files("/run/coldsnap/image/pages-3.img")(images)
    with pytest.raises(ColdSnapError, match="restored by mmap"):
        rewrite(images, place / "mmap", "mmap", fill_program)


@pytest.mark.parametrize(
    "spoil",
    [
        lambda images: (images / "pages-1.img").unlink(),
        lambda images: os.truncate(images / "pages-1.img", 299 * PAGE),
        lambda images: os.truncate(images / "pages-1.img", 301 * PAGE),
        lambda images: os.truncate(images / "pages-1.img", 300 * PAGE - 1),
        lambda images: (images / "mm-1000.img").unlink(),
        lambda images: (images / "core-1000.img").unlink(),
        lambda images: (images / "pstree.img").write_bytes(b""),
        lambda images: shutil.copy(images / "mm-1000.img", images / "pstree.img"),
        lambda images: os.truncate(images / "mm-1000.img", 20),
        lambda images: os.mkfifo(images / "pagemap-1.img"),
        of_pagemap(set_field("vaddr", BASE + 1)),
        of_pagemap(set_field("vaddr", BASE - (1 << 30))),
        of_pagemap(claim_more_pages),
        of_pagemap(set_field("nr_pages", 0)),
        lambda images: shutil.copy(images / "pagemap-1000.img", images / "pagemap-shmem-5.img"),
    ],
)
def test_damage_is_called_damage(
    place: Path, fill_program: Path, spoil: Callable[[Path], None]
) -> None:
    images = image(place)
    spoil(images)
    assert refusal(place, images, fill_program).code == "image.damaged"


@pytest.mark.parametrize("where", ["pages-1.img", "mm-1000.img", "pagemap-1000.img"])
def test_links_are_not_followed(place: Path, fill_program: Path, where: str) -> None:
    images = image(place)
    (images / where).rename(place / "elsewhere")
    (images / where).symlink_to(place / "elsewhere")
    assert refusal(place, images, fill_program).code == "image.damaged"


NAMES = ("inventory", "pstree", "core-1000", "mm-1000", "pagemap-1000", "files", "pages-1")


@st.composite
def damages(draw: st.DrawFn) -> tuple[str, Callable[[bytes], bytes]]:
    name = draw(st.sampled_from(NAMES)) + ".img"
    kind = draw(st.sampled_from(["flip", "cut", "grow", "replace", "splice"]))
    place, value = draw(st.floats(0, 1)), draw(st.binary(max_size=40))

    def change(data: bytes) -> bytes:
        at = int(place * len(data))
        if kind == "flip" and data:
            at = min(at, len(data) - 1)
            return data[:at] + bytes([data[at] ^ (value[0] if value else 255)]) + data[at + 1 :]
        if kind == "cut":
            return data[:at]
        if kind == "grow":
            return data + value
        if kind == "replace":
            return value
        return data[:at] + value + data[at + len(value) :]

    return name, change


@settings(
    max_examples=600, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(found=st.lists(damages(), min_size=1, max_size=3), mode=st.sampled_from(["ext", "mmap"]))
def test_no_damage_crashes_the_rewriter(
    place: Path, found: list[tuple[str, Callable[[bytes], bytes]]], mode: Any
) -> None:
    """Either our own error, or a rewrite whose index can be believed; never another exception."""
    images = place / "images"
    shutil.rmtree(images, ignore_errors=True)
    image(place, Vma(BASE, 300, FULL), Vma(BASE + (8 << 20), 40, ((1, 39),), status=0x221))
    for name, change in found:
        path = images / name
        path.write_bytes(change(path.read_bytes()))
    begun = time.monotonic()
    target = place / "out"
    shutil.rmtree(target, ignore_errors=True)
    try:
        rewrite(images, target, mode, Path("/bin/true"))
        read_fill_index((target / "fill.index").read_bytes())
    except ColdSnapError as error:
        assert error.code.startswith("image."), error  # noqa: PT017  (others may be right)
        assert not target.exists()
    try:
        assert len(sizes(images)) < 10
    except ColdSnapError as error:
        assert error.code in ("image.damaged", "image.unsupported")  # noqa: PT017
    assert time.monotonic() - begun < 5


@settings(max_examples=400, deadline=None)
@given(data=st.binary(max_size=400))
@example(b"CSFILL01" + b"\xff" * 40)
@example(b"CSFILL01" + b"\0" * 24 + b"\0\0\x10\0\1\0\0\0" + b"\0" * 44)
def test_no_bytes_crash_the_reader_of_indexes(data: bytes) -> None:
    try:
        read_fill_index(data)
    except ColdSnapError as error:
        assert error.code == "image.damaged"  # noqa: PT017


def test_claims_of_size_cost_no_memory(place: Path, fill_program: Path) -> None:
    """Counts, lengths and addresses that a file only claims are not allocated for."""
    images = image(place)
    of_pagemap(claim_more_pages)(images)
    mm = images / "mm-1000.img"
    claims = b"CSFILL01" + (1 << 20).to_bytes(4, "little") * 5 + b"\0" * 20
    tracemalloc.start()
    try:
        assert refusal(place, images, fill_program).code == "image.damaged"
        mm.write_bytes(mm.read_bytes()[:8] + b"\xff\xff\xff\x7f" + b"\0" * 100)
        assert refusal(place, images, fill_program).code == "image.damaged"
        with pytest.raises(ColdSnapError):
            read_fill_index(claims)
        with mm.open("wb") as file:
            file.truncate(1 << 40)
        assert refusal(place, images, fill_program).code == "image.damaged"
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 200 << 20
