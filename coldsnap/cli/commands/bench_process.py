"""``coldsnap bench process-restore``."""

from pathlib import Path
from typing import Annotated, Any

import typer

from coldsnap.cli.commands.bench import app
from coldsnap.cli.options import command
from coldsnap.cli.session import Session

_KINDS = "plain,thp,ext,mmap"
_ALL_KINDS = ("plain", "thp", "ext", "ext-small", "mmap")


@command(
    app,
    "process-restore",
    examples="""
        coldsnap bench process-restore --size 4.6GiB --rounds 5
        coldsnap bench process-restore --size 512MiB --rounds 1 --loop 200
        coldsnap bench process-restore --artifact qwen3 --ask /health --json
    """,
)
def process_restore(
    session: Session,
    size: Annotated[str, typer.Option(metavar="SIZE", help="Of the synthetic tree.")] = "4.6GiB",
    processes: Annotated[
        int, typer.Option(min=1, max=2, metavar="N", help="Of the tree; the second has a fifth.")
    ] = 2,
    artifact: Annotated[
        str, typer.Option(metavar="REF", help="Restore this artifact instead of a tree.")
    ] = "",
    ask: Annotated[
        str, typer.Option(metavar="PATH", help="Whose answer counts as the artifact's first.")
    ] = "/health",
    rounds: Annotated[int, typer.Option(min=1, max=100, metavar="N", help="Of every kind.")] = 5,
    kinds: Annotated[
        str, typer.Option(metavar="LIST", help="Of plain, thp, ext, ext-small, mmap.")
    ] = _KINDS,
    loop: Annotated[
        int, typer.Option(min=0, max=100000, metavar="N", help="Then N restores, all compared.")
    ] = 0,
    replicas: Annotated[
        int, typer.Option(min=0, max=1000, metavar="N", help="Then N times two at once by mmap.")
    ] = 0,
    folder: Annotated[
        Path | None, typer.Option("--dir", metavar="DIR", help="Where the scratch folder is made.")
    ] = None,
) -> None:
    """Restore one process image in turns by every way that its pages can come.

    One of each goes before and is not counted. Times run from the call to the processes being
    there, and to the first answer, which touches a part of the memory as a request does. Before
    each, as much free memory is touched, so that no hypervisor has to bring it meanwhile. Needs
    root and memory for three such trees; a tree that is too big is made smaller.
    """
    from coldsnap.artifact.errors import ColdSnapError
    from coldsnap.cli.process_bench import Options, fitting_size, run
    from coldsnap.cli.stores import store_of
    from coldsnap.render.process_bench import process_text
    from coldsnap_runtime.hydrate.bench import parse_size

    chosen = _chosen(kinds)
    try:
        bytes_wanted = parse_size(size)
    except ValueError as error:
        raise ColdSnapError("cli.usage", str(error)) from error
    if bytes_wanted < 1:
        raise ColdSnapError("cli.usage", f"--size {size} is no memory to restore")
    store, manifest = None, ""
    if artifact:
        from coldsnap.artifact.oci.read import find

        found = store_of(session)
        store, manifest = found.root, find(found, artifact).digest
    options = Options(
        size=fitting_size(bytes_wanted), processes=processes, kinds=chosen, rounds=rounds,
        loop=loop, replicas=replicas, folder=folder, store=store, manifest=manifest, ask=ask,
    )  # fmt: skip
    measured: dict[str, Any] = run(options, session.story)
    session.answer(lambda: process_text(measured, session.palette), measured)


def _chosen(kinds: str) -> tuple[str, ...]:
    """Raises ColdSnapError ``cli.usage``."""
    from coldsnap.artifact.errors import ColdSnapError

    chosen = tuple(word.strip() for word in kinds.split(",") if word.strip())
    unknown = set(chosen) - set(_ALL_KINDS)
    if chosen and not unknown:
        return chosen
    named = ", ".join(sorted(unknown)) or repr(kinds)
    remedy = f"--kinds takes a list of {', '.join(_ALL_KINDS)}"
    raise ColdSnapError("cli.usage", f"unknown kind {named}", remedy=remedy)
