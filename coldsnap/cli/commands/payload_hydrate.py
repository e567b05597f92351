"""``coldsnap payload hydrate`` and ``record``."""

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from coldsnap.cli.commands.payload_app import (
    PACK,
    app,
    meter,
    needed_library,
    open_beside,
    verify_whole,
)
from coldsnap.cli.options import command
from coldsnap.cli.session import Session

if TYPE_CHECKING:
    from contextlib import ExitStack

    from coldsnap.artifact.pack import PackReader
    from coldsnap_runtime.hydrate import Library, Report


class Device(StrEnum):
    HOST = "host"
    CUDA = "cuda"


class Way(StrEnum):
    RING = "ring"
    CUFILE = "cufile"
    MEASURED = "measured"


@command(
    app,
    examples="""
        coldsnap payload hydrate payloads/sha256/9be1....pack
        coldsnap payload hydrate PACK --device cuda --no-verify
        coldsnap payload hydrate PACK --device cuda --engine measured
    """,
)
def hydrate(
    session: Session,
    pack: Annotated[Path, PACK],
    device: Annotated[Device, typer.Option(help="Memory to bring it to.")] = Device.HOST,
    verify: Annotated[
        bool, typer.Option("--verify/--no-verify", help="Check every chunk's digest on the way.")
    ] = True,
    threads: Annotated[
        int, typer.Option(metavar="N", help="Readers; 0: chosen by the library.", min=0, max=256)
    ] = 0,
    engine: Annotated[
        Way | None, typer.Option(help="How bytes come to a device; cuFile needs libcufile.")
    ] = None,
    timeout: Annotated[
        float, typer.Option(metavar="SECONDS", help="Give up after that; 0: never.", min=0)
    ] = 0,
) -> None:
    """Bring a pack into memory and let it go again; tells rate and stages."""
    from contextlib import ExitStack

    library = needed_library()
    with ExitStack() as stack:
        opened = stack.enter_context(open_beside(pack))
        address = _memory(stack, library, opened, device)
        show = stack.enter_context(meter(session, "hydrate"))
        report = _hydrate(
            library, opened, address, device, threads=threads, show=show, verify=verify,
            seconds=timeout, engine=engine,
        )  # fmt: skip
    _answer(session, pack, report, verify=verify)


def _memory(stack: "ExitStack", library: "Library", pack: "PackReader", device: Device) -> int:
    """Address of memory that holds the whole body; it goes when `stack` closes."""
    import mmap

    from coldsnap_runtime.hydrate import Region
    from coldsnap_runtime.hydrate.bench_file import HostMemory

    size = max(pack.index.body.bytes, mmap.PAGESIZE)
    if device is Device.CUDA:
        return stack.enter_context(Region(library, size)).address
    memory = HostMemory(size)
    stack.callback(lambda: memory)
    return memory.address


def _hydrate(
    library: "Library", pack: "PackReader", address: int, device: Device, *, threads: int,
    show: "object", verify: bool, seconds: float, engine: Way | None,
) -> "Report":  # fmt: skip
    from coldsnap_runtime.hydrate import Session as Hydration
    from coldsnap_runtime.hydrate import hydrate_pack
    from coldsnap_runtime.hydrate.structures import Engine, Place

    way = Engine[engine.name] if engine is not None else None
    place = Place.CUDA if device is Device.CUDA else Place.HOST
    addresses = {extent.id: address + extent.offset for extent in pack.extents}
    with Hydration(library, place, threads=threads, engine=way) as hydration:
        return hydrate_pack(
            hydration, pack, addresses, verify=verify, seconds=seconds,
            progress=show,  # type: ignore[arg-type]
        )  # fmt: skip


def _answer(session: Session, path: Path, report: "Report", *, verify: bool) -> None:
    from dataclasses import asdict

    from coldsnap.render.quantities import duration, rate, size

    speed = report.bytes / max(report.seconds, 1e-9)
    checked = "every chunk checked" if verify else "not checked"
    stages = ", ".join(f"{name} {duration(value)}" for name, value in report.stages.items())
    ways = f"{size(report.direct_bytes)} by O_DIRECT"
    if report.device_digest_bytes:
        ways += f", {size(report.device_digest_bytes)} digested by the device"
    if report.engine == "cufile":
        ways += ", by cuFile"
    if report.engine_reason:
        ways += f"\n  by the ring: {report.engine_reason}"
    session.answer(
        f"hydrated: {path}\n"
        f"  {size(report.bytes)} in {duration(report.seconds)}, {rate(speed)}, {checked}\n"
        f"  {report.threads} threads, summed: {stages}; {ways}",
        {"path": str(path), "verified": verify, "rate": speed, **asdict(report)},
    )


@command(
    app,
    examples="""
        coldsnap payload record payloads/sha256/9be1....pack
        coldsnap payload record PACK --record records/pack.json
    """,
)
def record(
    session: Session,
    pack: Annotated[Path, PACK],
    record: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Where it is written; default: beside the pack."),
    ] = None,
) -> None:
    """Verify a pack and remember it: the same file is not hashed again."""
    from coldsnap.artifact.validation import SUFFIX, check_place, write_record
    from coldsnap.render.quantities import size

    with open_beside(pack) as opened:
        path = Path(opened.name)
        place = record or path.with_name(path.name + SUFFIX)
        check_place(place)
        verify_whole(session, opened)
        body = opened.index.body
    write_record(place, path, body.sha256)
    session.answer(
        f"recorded: {place}\n  {body.sha256}  {size(body.bytes)}",
        {"record": str(place), "path": str(path), "sha256": body.sha256, "bytes": body.bytes},
    )
