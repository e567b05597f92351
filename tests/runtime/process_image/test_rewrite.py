"""Whatever an image looks like, its rewrite brings the same memory back."""

from __future__ import annotations

import shutil
import stat
import time
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from image_builder import (
    BASE,
    PAGE,
    Proc,
    Vma,
    build,
    content,
    dumped,
    entry_of_pagemap,
    fill,
    messages,
    restore,
    write_image,
)

from coldsnap.artifact.errors import ColdSnapError
from coldsnap_runtime import restore_rungs
from coldsnap_runtime.process_image import Mode, rewrite, rewrite_plan, shared_pages
from coldsnap_runtime.process_image.fill_index import MAY_BE_HUGE, read_fill_index

MIB = 1 << 20
KINDS = {
    "plain": {},
    "heap": {"status": 0x221},
    "noreserve": {"flags": 0x4022},
    "hugepage": {"madv": 1 << 14},
    "nohugepage": {"madv": 1 << 15},
    "dontdump": {"madv": 1 << 16},
    "read-only": {"prot": 1},
    "executable": {"prot": 7},
    "grows down": {"flags": 0x122},
    "locked": {"flags": 0x2022},
    "droppable": {"flags": 0x2A},
    "dontfork": {"madv": 1 << 10},
    "wipeonfork": {"madv": 1 << 18},
    "mergeable": {"madv": 1 << 12},
    "file": {"status": 0x41, "flags": 0x2, "shmid": 7},
    "stack": {"status": 0x203},
    "shadow stack": {"status": 0x8201},
    "aio": {"status": 0x2201},
    "device": {"status": (1 << 27) | 0x201},
}
MOVABLE = {"plain", "heap", "noreserve", "hugepage", "nohugepage", "dontdump"}
SLOTS = ("sp", "fs_base", "clear_tid_addr", "futex_rla", "rseq", "sas")


@st.composite
def processes(draw: st.DrawFn) -> tuple[Proc, dict[int, str]]:
    """A process, and the kind of each of its areas by its start."""
    vmas, kinds, at = [], {}, BASE
    for _ in range(draw(st.integers(1, 8))):
        at += draw(st.sampled_from([0, 1, 600])) * PAGE
        kind = draw(st.sampled_from(["plain", "plain", *KINDS]))
        runs, page = [], 0
        for _ in range(draw(st.integers(0, 4))):
            page += draw(st.integers(0, 20))
            count = draw(st.sampled_from([1, 2, 15, 16, 31, 32, 33, 70]))
            runs.append((page, count))
            page += count
        vma = Vma(at, page + draw(st.integers(1, 20)), tuple(runs), **KINDS[kind])
        vmas.append(vma)
        kinds[at] = kind
        at = vma.end
    inside = st.sampled_from(vmas).flatmap(lambda vma: st.integers(vma.start, vma.end - 1))
    hot = draw(st.dictionaries(st.sampled_from(SLOTS), inside, max_size=2))
    return Proc(1000, vmas, hot=hot), kinds


@settings(
    max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(found=processes(), mode=st.sampled_from(["ext", "mmap"]))
def test_memory_is_the_same(
    place: Path, fill_program: Path, found: tuple[Proc, dict[int, str]], mode: Mode
) -> None:
    proc, kinds = found
    images, overlay = fresh(place, [proc]), place / mode
    try:
        done = rewrite(images, overlay, mode, fill_program)
    except ColdSnapError as error:
        if "worth moving" not in error.message:
            raise
        return
    back = restore(images, overlay, proc.pid)
    if mode == "ext":
        assert not back.by_rung
        fill(images, overlay, proc.pid, back)
    expected = {address: content(address, 0) for address in dumped(proc)}
    assert not back.by_criu.keys() & back.by_rung.keys(), "no page comes twice"
    assert back.by_criu | back.by_rung == expected
    assert done.bytes_moved == len(back.by_rung) * PAGE
    assert done.bytes_kept == len(back.by_criu) * PAGE == sum(done.kept.values())
    index = read_fill_index((overlay / "fill.index").read_bytes())
    assert index.total == done.bytes_moved
    for area in index.areas:
        left = [at for at in back.by_criu if area.start <= at < area.end]
        assert not left, "all that is not zero in an area is moved"
    for address in back.by_rung:
        vma = next(vma for vma in proc.vmas if vma.start <= address < vma.end)
        assert kinds[vma.start] in MOVABLE
        assert not any(address <= hot < address + PAGE for hot in proc.hot.values())
    areas = [(vma.start, vma.end) for vma in back.vmas]
    assert all(first[1] <= second[0] for first, second in pairwise(areas))
    assert sum(end - start for start, end in areas) == sum(v.end - v.start for v in proc.vmas)


def test_two_rewrites_are_the_same_bytes(place: Path, fill_program: Path) -> None:
    images = fresh(place, [big()])
    for mode in ("ext", "mmap"):
        one, two = place / f"{mode}1", place / f"{mode}2"
        for target in (one, two):
            rewrite(images, target, mode, fill_program)
        names = sorted(path.name for path in one.iterdir())
        assert names == sorted(path.name for path in two.iterdir())
        assert all((one / name).read_bytes() == (two / name).read_bytes() for name in names)
        modes = {stat.S_IMODE(path.stat().st_mode) for path in one.iterdir()}
        assert modes == {0o400}


def test_originals_are_not_touched_and_pages_not_copied(place: Path, fill_program: Path) -> None:
    images = fresh(place, [big()])
    before = {path.name: path.read_bytes() for path in images.iterdir()}
    rewrite(images, place / "ext", "ext", fill_program)
    assert {path.name: path.read_bytes() for path in images.iterdir()} == before
    assert sum(path.stat().st_size for path in (place / "ext").iterdir()) < 64 << 10


def test_a_failed_rewrite_leaves_nothing(place: Path) -> None:
    images = fresh(place, [big()])
    for program in (place / "missing", Path("/bin/false")):
        with pytest.raises(ColdSnapError, match=r"image\.seal-failed"):
            rewrite(images, place / "ext", "ext", program)
        assert sorted(path.name for path in place.iterdir()) == ["images"]


def test_around_hot_addresses_a_large_area_is_moved(place: Path, fill_program: Path) -> None:
    """A thread's block in memory that was merged with gigabytes must not keep them all."""
    pages = 40 * MIB // PAGE
    hot = BASE + 20 * MIB + 123
    proc = Proc(1, [Vma(BASE, pages, ((0, pages),))], hot={"fs_base": hot})
    images = fresh(place, [proc])
    done = rewrite(images, place / "ext", "ext", fill_program)
    assert done.bytes_moved == 31 * MIB
    index = read_fill_index((place / "ext" / "fill.index").read_bytes())
    spans = [(area.start - BASE, area.end - BASE) for area in index.areas]
    assert spans == [(0, 12 * MIB), (21 * MIB, 40 * MIB)]


def test_wide_holes_are_in_no_area(place: Path, fill_program: Path) -> None:
    """Gigabytes that are only reserved are neither filled nor looked at."""
    gib = (1 << 30) // PAGE
    runs = ((gib, 600), (gib + 700, 600), (5 * gib, 600))
    proc = Proc(1, [Vma(BASE, 9 * gib, runs, flags=0x4022)])
    rewrite(fresh(place, [proc]), place / "ext", "ext", fill_program)
    index = read_fill_index((place / "ext" / "fill.index").read_bytes())
    spans = [((a.start - BASE) // PAGE, (a.end - BASE) // PAGE) for a in index.areas]
    assert spans == [(gib, gib + 1300), (5 * gib, 5 * gib + 600)]


def test_guarded_memory_stays(place: Path, fill_program: Path) -> None:
    proc = big()
    guarded = proc.vmas[0]
    proc.guards = ((guarded.start + PAGE, guarded.start + 2 * PAGE),)
    with pytest.raises(ColdSnapError, match="worth moving"):
        rewrite(fresh(place, [proc]), place / "ext", "ext", fill_program)
    proc.vmas.append(Vma(guarded.end + PAGE, 600, ((0, 600),)))
    rewrite(fresh(place, [proc]), place / "mmap", "mmap", fill_program)
    vmas = restore(place / "images", place / "mmap", proc.pid).vmas
    assert [vma.status for vma in vmas] == [0x201, 0x41, 1 << 16], "guards stay last"


def test_huge_pages_where_they_are_welcome(place: Path, fill_program: Path) -> None:
    size = 4 * MIB // PAGE
    full = ((0, size),)
    vmas = [
        Vma(BASE, size, full),
        Vma(BASE + 8 * MIB, size, full, madv=1 << 15),
        Vma(BASE + 16 * MIB + PAGE, size // 2, ((0, size // 2),)),
    ]
    rewrite(fresh(place, [Proc(1, vmas)]), place / "ext", "ext", fill_program)
    index = read_fill_index((place / "ext" / "fill.index").read_bytes())
    assert [bool(area.flags & MAY_BE_HUGE) for area in index.areas] == [True, False, False]


def test_dense_areas_ask_for_huge_pages(place: Path, fill_program: Path) -> None:
    """Where a huge page is filled nearly whole, and never where it would be memory for nothing."""
    huge, size = 2 * MIB // PAGE, 8 * MIB // PAGE
    cases = {
        "dense": (Vma(BASE, size, ((0, size),)), True),
        "ends off the grid": (Vma(BASE + 16 * MIB + PAGE, size, ((0, size),)), True),
        "a few pages are zero": (Vma(BASE + 32 * MIB, size, ((0, 40), (50, size - 50))), True),
        "half of it": (Vma(BASE + 48 * MIB, size, ((0, size // 2),)), False),
        "every other page": (
            Vma(BASE + 64 * MIB, huge, tuple((page, 1) for page in range(0, huge, 2))),
            False,
        ),
        "none fits": (Vma(BASE + 80 * MIB + PAGE, huge, ((0, huge),)), False),
        "unwanted": (Vma(BASE + 96 * MIB, size, ((0, size),), madv=1 << 15), False),
        "stays with CRIU": (Vma(BASE + 112 * MIB, size, ((0, size),), prot=1), False),
    }
    proc = Proc(7, [vma for vma, _ in cases.values()])
    images = fresh(place, [proc])
    done = rewrite(images, place / "ext", "ext", fill_program)
    back = restore(images, place / "ext", proc.pid)
    asked = {name: bool(found.madv & 1 << 14) for name, found in zip(cases, back.vmas, strict=True)}
    assert asked == {name: wanted for name, (_, wanted) in cases.items()}
    assert done.bytes_huge == 8 * MIB + 6 * MIB + (size - 10) * PAGE
    originals = restore(images, images, proc.pid).vmas
    for before, after in zip(originals, back.vmas, strict=True):
        before.madv, after.madv = 0, 0
        assert after == before, "nothing else is changed"
    fill(images, place / "ext", proc.pid, back)
    assert back.by_criu | back.by_rung == {at: content(at, 0) for at in dumped(proc)}


def test_no_list_of_areas_where_nothing_is_asked(place: Path, fill_program: Path) -> None:
    small = Proc(7, [Vma(BASE, 300, ((0, 300),))])
    rewrite(fresh(place, [small]), place / "ext", "ext", fill_program)
    assert not (place / "ext" / "mm-7.img").exists()


@pytest.mark.parametrize(
    ("mode", "wanted", "takes"),
    [
        ("always [madvise] never", True, True),
        ("always [madvise] never", False, False),
        ("[always] madvise never", True, False),
        ("always madvise [never]", True, False),
        ("", True, False),
    ],
)
def test_the_advice_is_taken_where_the_kernel_listens(
    place: Path,
    tmp_path: Path,
    fill_program: Path,
    monkeypatch: pytest.MonkeyPatch,
    mode: str,
    wanted: bool,
    takes: bool,
) -> None:
    """A kernel without huge pages refuses the advice, and CRIU would refuse the restore."""
    switch = tmp_path / "enabled"
    if mode:
        switch.write_text(mode + "\n")
    monkeypatch.setattr(restore_rungs, "_THP", switch)
    size = 4 * MIB // PAGE
    images = fresh(place, [Proc(7, [Vma(BASE, size, ((0, size),))])])
    rewrite(images, place / "ext", "ext", fill_program)
    laid = restore_rungs.assemble(place, "ext", place / "laid", huge_pages=wanted)
    of = place / "ext" if takes else images
    assert (laid / "mm-7.img").read_bytes() == (of / "mm-7.img").read_bytes()
    assert (laid / "pagemap-7.img").read_bytes() == (place / "ext/pagemap-7.img").read_bytes()


def test_what_many_forks_share_stays_shared(
    place: Path, fill_program: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Equal pages at the same place in parent and child are CRIU's, which keeps one copy."""
    shared = Vma(BASE, 600, ((0, 600),))
    parent = Proc(1, [shared, Vma(BASE + 8 * MIB, 600, ((0, 600),))])
    child = Proc(2, [shared, Vma(BASE + 16 * MIB, 600, ((0, 600),))], ppid=1)

    def areas(name: str) -> list[int]:
        rewrite(build(place / name, [parent, child]), place / f"{name}-ext", "ext", fill_program)
        index = read_fill_index((place / f"{name}-ext" / "fill.index").read_bytes())
        return [area.start for area in index.areas]

    everything = [BASE, BASE + 8 * MIB, BASE, BASE + 16 * MIB]
    assert areas("little") == everything, "a few MiB twice are worth the time"
    monkeypatch.setattr(shared_pages, "_FREE_BYTES", 2 * MIB)
    monkeypatch.setattr(shared_pages, "_FREE_PART", 5)
    assert areas("much") == [BASE + 8 * MIB, BASE + 16 * MIB]
    child.salt = 1
    assert areas("others") == everything, "the same place with other contents is not shared"


def test_a_process_that_stays_mostly_is_left_whole(place: Path, fill_program: Path) -> None:
    little = Proc(2, [Vma(BASE, 100, ((0, 100),)), Vma(BASE + MIB, 400, ((0, 400),), prot=1)])
    done = rewrite(fresh(place, [big(), little]), place / "ext", "ext", fill_program)
    assert [moved.pid for moved in done.processes] == [1]
    assert not list((place / "ext").glob("*-2.img"))


def test_mappings_stay_below_the_kernels_limit(
    place: Path, fill_program: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With too many runs only the longer ones are mapped; the others stay with CRIU."""
    runs = tuple((at * 200, 40 + 60 * (at % 2)) for at in range(20))
    images = fresh(place, [Proc(1, [Vma(BASE, 4000, runs)])])
    assert rewrite(images, place / "all", "mmap", fill_program).areas == 20
    monkeypatch.setattr(rewrite_plan, "_MOST_AREAS", 30)
    done = rewrite(images, place / "some", "mmap", fill_program)
    assert done.areas == 10
    assert done.bytes_moved == 10 * 100 * PAGE
    assert len(restore(images, place / "some", 1).vmas) <= 30


def test_a_great_many_runs(place: Path, fill_program: Path) -> None:
    """Every second page of 800 MiB, all of it a hole: seconds, not minutes."""
    runs = tuple((at * 2, 1) for at in range(100_000))
    images = fresh(place, [Proc(1, [Vma(BASE, 200_000)])])
    entries = [entry_of_pagemap(BASE + at * PAGE, count) for at, count in runs]
    head = messages("pagemap").pagemap_head(pages_id=1)
    write_image(images, "pagemap-1.img:PAGEMAP", head, *entries)
    with (images / "pages-1.img").open("wb") as file:
        file.truncate(len(runs) * PAGE)
    begun = time.monotonic()
    done = rewrite(images, place / "ext", "ext", fill_program)
    assert done.runs == 100_000
    assert read_fill_index((place / "ext" / "fill.index").read_bytes()).total == 100_000 * PAGE
    assert time.monotonic() - begun < 30


def big() -> Proc:
    return Proc(1, [Vma(BASE, 700, ((0, 300), (320, 300)))])


def fresh(place: Path, procs: list[Proc]) -> Path:
    for path in place.iterdir():
        shutil.rmtree(path)
    return build(place / "images", procs)
