"""The table of what an image is made of."""

from __future__ import annotations

from pathlib import Path

from image_builder import BASE, PAGE, Proc, Vma, build, entry_of_pagemap, messages, write_image

from coldsnap_runtime.process_image import sizes

MIB = 1 << 20


def test_kinds_and_sums(place: Path) -> None:
    thread = BASE + 0x6000_0000
    vmas = [
        Vma(BASE, 100, ((0, 10), (20, 30)), status=0x221),
        Vma(BASE + MIB, 700, ((0, 600),)),
        Vma(BASE + 8 * MIB, 50, ((0, 5),), status=0x41, flags=0x2, shmid=7),
        Vma(BASE + 16 * MIB, 10),
        Vma(BASE + 24 * MIB, 4, ((0, 4),), status=(1 << 27) | 0x201),
        Vma(BASE + 32 * MIB, 50, status=0x101, flags=0x21, shmid=99),
        Vma(BASE + 40 * MIB, 50, status=0x101, flags=0x21, shmid=99),
        Vma(thread, 30, ((20, 10),)),
    ]
    images = build(place / "images", [Proc(1000, vmas, hot={"sp": thread + 25 * PAGE})])
    head = messages("pagemap").pagemap_head(pages_id=5)
    write_image(images, "pagemap-shmem-99.img:PAGEMAP", head, entry_of_pagemap(0, 12))
    (images / "pages-5.img").write_bytes(bytes(12 * PAGE))
    rows = sizes(images)
    found = [(row["kind"], row["name"], row["bytes"] // PAGE) for row in rows]
    assert found == [
        ("anonymous", "", 600),
        ("heap", "", 40),
        ("shared", "", 12),
        ("stack", "", 10),
        ("file-private", "/usr/lib/x.so", 5),
        ("device", "", 4),
    ]
    assert {(row["pid"], row["process"]) for row in rows} == {(1000, "proc1000")}
    assert rows[0]["start"] == BASE + MIB
    pages = sum(path.stat().st_size for path in images.glob("pages-*.img"))
    assert sum(row["bytes"] for row in rows) == pages


def test_no_more_rows_than_are_shown(place: Path) -> None:
    vmas = [Vma(BASE + at * 2 * PAGE, 1, ((0, 1),)) for at in range(5000)]
    vmas.append(Vma(BASE + (1 << 30), 300, ((0, 300),)))
    rows = sizes(build(place / "images", [Proc(1, vmas)]))
    assert len(rows) == 4096
    assert rows[0]["bytes"] == 300 * PAGE


def test_device_state_is_told_apart(place: Path) -> None:
    """The driver's copy of device memory, which may be merged with memory that was there."""
    vmas = [Vma(BASE, 700, ((0, 600),)), Vma(BASE + 8 * MIB, 100, ((50, 20),))]
    images = build(place / "images", [Proc(1000, vmas)])
    ranges = {1000: [[BASE + 100 * PAGE, BASE + 650 * PAGE], [BASE + 8 * MIB, BASE + 9 * MIB]]}
    found = [(row["kind"], row["start"], row["bytes"] // PAGE) for row in sizes(images, ranges)]
    assert found == [
        ("device-state", BASE + 100 * PAGE, 500),
        ("anonymous", BASE, 100),
        ("device-state", BASE + 8 * MIB, 20),
    ]
