"""``coldsnap payload pack``, ``list`` and ``verify``."""

from pathlib import Path
from typing import Annotated

import typer

from coldsnap.cli.commands.payload_app import PACK, app, open_beside, verify_whole
from coldsnap.cli.options import command
from coldsnap.cli.session import Session


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
def list_(session: Session, path: Annotated[Path, PACK]) -> None:
    """List the extents of a pack."""
    from coldsnap.render.columns import table
    from coldsnap.render.quantities import plural, size

    with open_beside(path) as opened:
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
        coldsnap payload verify --path FILE --record FILE.coldsnap-validation.json \\
          --expected-sha256 sha256:9be1... --expected-bytes 4096 --worker w0
    """,
)
def verify(
    session: Session,
    pack: Annotated[Path | None, PACK] = None,
    path: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The same as PACK, for managers.")
    ] = None,
    expected_sha256: Annotated[
        str | None, typer.Option(metavar="DIGEST", help="Identity that the pack must have.")
    ] = None,
    expected_bytes: Annotated[
        int | None, typer.Option(metavar="N", help="Length that the body must have.", min=0)
    ] = None,
    record: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Validation record: trusted while the file is the same."),
    ] = None,
    worker: Annotated[
        str, typer.Option(metavar="ID", help="Worker named in the answer; goes with --record.")
    ] = "",
) -> None:
    """Check every byte of a pack: chunks, extents, padding, identity."""
    from coldsnap.artifact.errors import ColdSnapError

    body = pack or path
    if body is None:
        raise ColdSnapError("cli.usage", "no pack is named", remedy="give PACK or --path FILE")
    if record is None:
        _verify_pack(session, body, expected_sha256, expected_bytes)
        return
    if expected_sha256 is None or expected_bytes is None:
        raise ColdSnapError(
            "cli.usage",
            "--record needs to know what to expect",
            remedy="give --expected-sha256 and --expected-bytes",
        )
    from coldsnap.artifact.validation import check_place, validate

    check_place(record)
    found = validate(
        body, sha256=expected_sha256, size=expected_bytes, record=record, worker=worker
    )
    session.answer(f"accepted: {body}\n  {found.validation.reason}", found.to_json())


def _verify_pack(session: Session, path: Path, sha256: str | None, size: int | None) -> None:
    import time

    from coldsnap.artifact.errors import ColdSnapError
    from coldsnap.render import quantities

    started = time.monotonic()
    with open_beside(path, body_sha256=sha256) as opened:
        body = opened.index.body
        if size is not None and body.bytes != size:
            raise ColdSnapError("pack.body-differs", f"{path} has {body.bytes} bytes, not {size}")
        verify_whole(session, opened)
        checked = body.bytes
    seconds = max(time.monotonic() - started, 1e-6)
    speed = quantities.rate(checked / seconds)
    session.answer(
        f"intact: {path}\n  {body.sha256}  {quantities.size(checked)} at {speed}",
        {
            "path": str(path),
            "sha256": body.sha256,
            "bytes": body.bytes,
            "bytes_hashed": checked,
            "seconds": seconds,
            "decision": "accept",
        },
    )
