"""``coldsnap payload bench``: hydration beside the ceilings of the same run."""

from pathlib import Path
from typing import Annotated, Any

import typer

from coldsnap.cli.commands.payload_app import app, needed_library
from coldsnap.cli.commands.payload_hydrate import Device
from coldsnap.cli.options import command
from coldsnap.cli.session import Session

_CHOSEN = "0: chosen by the library."
AGAINST_HELP = "Also other loaders: safetensors, fastsafetensors, instanttensor, runai."


@command(
    app,
    examples="""
        coldsnap payload bench --size 256MiB --rounds 2
        coldsnap payload bench --device cuda --size 15GiB --dir /var/tmp --keep
        coldsnap payload bench --against safetensors,fastsafetensors --peer-python python3
    """,
)
def bench(
    session: Session,
    device: Annotated[Device, typer.Option(help="Memory to bring it to.")] = Device.HOST,
    size: Annotated[str, typer.Option(metavar="SIZE", help="Of the file: 15GiB, 512MB.")] = "1GiB",
    folder: Annotated[
        Path | None, typer.Option("--dir", metavar="DIR", help="Where the file is made.")
    ] = None,
    rounds: Annotated[int, typer.Option(metavar="N", min=1, help="Medians are told.")] = 5,
    threads: Annotated[int, typer.Option(metavar="N", min=0, max=256, help=_CHOSEN)] = 0,
    slots: Annotated[
        int, typer.Option(metavar="N", min=0, max=64, help=f"Buffers per thread. {_CHOSEN}")
    ] = 0,
    slot_size: Annotated[str, typer.Option(metavar="SIZE", help=f"Of a buffer. {_CHOSEN}")] = "0",
    cold: Annotated[
        bool, typer.Option("--cold/--no-cold", help="Also with the page cache dropped.")
    ] = True,
    write: Annotated[bool, typer.Option("--write/--no-write", help="Also the way back.")] = True,
    keep: Annotated[bool, typer.Option("--keep", help="Leave the file, and use it again.")] = False,
    against: Annotated[
        str, typer.Option(metavar="NAMES", help=AGAINST_HELP, show_default=False)
    ] = "",
    peer_python: Annotated[
        str, typer.Option(metavar="PROGRAM", help="Interpreter that has torch and those loaders.")
    ] = "",
) -> None:
    """Measure hydration, warm and cold, beside what this machine can do at most.

    Every round runs everything once; the table shows medians and ratios of one run. Nothing but
    this should be running. With --against, other loaders of safetensors files are measured on the
    same file, in turns.
    """
    if against:
        from coldsnap.cli.commands.payload_against import run_peers
        from coldsnap_runtime.hydrate.bench_rounds import AgainstOptions

        shape = {"threads": threads, "slots": slots, "slot_bytes": _size(slot_size)}
        names = tuple(name.strip() for name in against.split(","))
        run_peers(session, AgainstOptions(
            size=_size(size, 1), against=names, folder=folder, device=device.value, rounds=rounds,
            cold=cold, keep=keep, peer_python=peer_python or None, shape=shape,
        ))  # fmt: skip
        return
    from coldsnap_runtime.hydrate.bench import BenchOptions, run_bench

    options = BenchOptions(
        size=_size(size, 1), folder=folder, device=device.value, rounds=rounds, threads=threads,
        slots=slots, slot_bytes=_size(slot_size), keep=keep, cold=cold, write=write,
    )  # fmt: skip
    found = run_bench(needed_library(), options, session.story)
    session.answer(lambda: _table(session, found), found)


def _size(text: str, least: int = 0) -> int:
    from coldsnap.artifact.errors import ColdSnapError
    from coldsnap_runtime.hydrate.bench import parse_size

    try:
        found = parse_size(text)
    except ValueError as error:
        raise ColdSnapError("cli.usage", str(error)) from error
    if found < least:
        raise ColdSnapError("cli.usage", f"--size {text} is no file to measure")
    return found


def _table(session: Session, found: dict[str, Any]) -> str:
    from coldsnap.render.columns import table
    from coldsnap.render.quantities import plural, rate, size

    rows = [
        (
            entry["name"],
            rate(entry["rate"]),
            rate(entry["best"]),
            f"{100 * entry['ratio']:.0f} %" if entry["ratio"] else "",
            f"of {entry['ceiling']}" if entry["ceiling"] else "",
        )
        for entry in found["series"]
    ]
    machine = found["machine"]
    load = ", ".join(str(value) for value in machine["load"])
    head = ("TRANSFER", "MEDIAN", "BEST", "RATIO", "")
    shown = table(head, rows, session.palette, right=(1, 2, 3))
    return (
        f"{shown}\n\n{size(found['size'])}, {plural(found['rounds'], 'round')}, "
        f"{machine['device']}, {machine['cores']} cores, load {load}"
    )
