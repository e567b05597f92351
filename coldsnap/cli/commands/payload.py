"""``coldsnap payload``: payload packs on this machine."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from coldsnap.cli.options import command, group
from coldsnap.cli.session import Session

if TYPE_CHECKING:
    from coldsnap.artifact.pack import PackReader

app = group("Make, list and verify payload packs.")

_PACK = typer.Argument(metavar="PACK", help="The body, HEX.pack; HEX.index.json is beside it.")


@command(
    app,
    examples="""
        coldsnap payload pack model/ --out payloads
        coldsnap payload pack model-1.safetensors model-2.safetensors --out payloads
    """,
)
def pack(
    session: Session,
    files: Annotated[
        list[Path],
        typer.Argument(metavar="FILE...", help="Safetensors files, folders of them, other files."),
    ],
    out: Annotated[Path, typer.Option(metavar="DIR", help="Folder of packs.")] = Path("payloads"),
) -> None:
    """Write tensors into a content-addressed pack: DIR/sha256/HEX.pack."""
    from contextlib import ExitStack

    from coldsnap.artifact.pack import write_pack
    from coldsnap.cli.tensors import sources
    from coldsnap.render.quantities import plural, size

    with ExitStack() as stack:
        extents = sources(files, stack)
        made = write_pack(out, extents)
    session.answer(
        f"{made.body}\n  {made.sha256}  {size(made.bytes)} in {plural(len(extents), 'extent')}",
        {
            "body": str(made.body),
            "index": str(made.index),
            "bytes": made.bytes,
            "sha256": made.sha256,
            "index_sha256": made.index_sha256,
            "extents": len(extents),
        },
    )


@command(
    app,
    "list",
    examples="""
        coldsnap payload list payloads/sha256/9be1....pack
        coldsnap payload list PACK --json
    """,
)
def list_(session: Session, path: Annotated[Path, _PACK]) -> None:
    """List the extents of a pack."""
    from coldsnap.render.columns import table
    from coldsnap.render.quantities import plural, size

    with _open(path) as opened:
        index = opened.index
        rows = [
            (e.id, size(e.length), " ".join(e.attributes.values()), e.sha256[:19] + "..")
            for e in index.extents
        ]
        head = ("EXTENT", "SIZE", "WHAT", "DIGEST")
        total = f"{plural(len(rows), 'extent')}, {size(index.body.bytes)}, {index.body.sha256}"
        session.answer(
            lambda: f"{table(head, rows, session.palette, right=(1,))}\n\n{total}",
            index.to_json(),
        )


@command(
    app,
    examples="""
        coldsnap payload verify payloads/sha256/9be1....pack
        coldsnap payload verify PACK --expected-sha256 sha256:9be1...
    """,
)
def verify(
    session: Session,
    path: Annotated[Path, _PACK],
    expected_sha256: Annotated[
        str | None, typer.Option(metavar="DIGEST", help="Identity that the pack must have.")
    ] = None,
    expected_bytes: Annotated[
        int | None, typer.Option(metavar="N", help="Length that the body must have.", min=0)
    ] = None,
) -> None:
    """Check every byte of a pack: chunks, extents, padding, identity."""
    import time

    from coldsnap.artifact.errors import ColdSnapError
    from coldsnap.render.quantities import rate, size

    started = time.monotonic()
    with _open(path, body_sha256=expected_sha256) as opened:
        if expected_bytes is not None and opened.index.body.bytes != expected_bytes:
            raise ColdSnapError(
                "pack.body-differs",
                f"{path} has {opened.index.body.bytes} bytes, not {expected_bytes}",
            )
        checked = opened.verify()
        body = opened.index.body
    seconds = max(time.monotonic() - started, 1e-6)
    session.answer(
        f"intact: {path}\n  {body.sha256}  {size(checked)} at {rate(checked / seconds)}",
        {
            "path": str(path),
            "sha256": body.sha256,
            "bytes": body.bytes,
            "bytes_hashed": checked,
            "seconds": seconds,
            "decision": "accept",
        },
    )


def _open(path: Path, **expected: Any) -> "PackReader":
    from coldsnap.artifact.pack import open_pack

    if path.name.endswith(".index.json"):
        path = path.with_name(path.name.removesuffix(".index.json") + ".pack")
    return open_pack(path, path.with_name(path.stem + ".index.json"), **expected)
