"""``coldsnap artifact``: captures in a store on this machine."""

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from coldsnap.cli.options import command, group
from coldsnap.cli.session import Session

if TYPE_CHECKING:
    from coldsnap.artifact.oci.layout import Store
    from coldsnap.artifact.oci.read import Artifact

_TOLD_EVERY = 1 << 30

app = group("List, inspect, verify, compare and delete captures.")

_REF = typer.Argument(metavar="REF", help="A tag, a digest, or its first 6 digits or more.")


@command(
    app,
    "list",
    fleet=True,
    store=True,
    examples="""
        coldsnap artifact list
        coldsnap artifact list --store oci-layout:/srv/captures --json
    """,
)
def list_(session: Session) -> None:
    """List captures, newest first."""
    from coldsnap.artifact.errors import ColdSnapError
    from coldsnap.artifact.oci.entries import Entry
    from coldsnap.artifact.oci.payload_state import payload_state
    from coldsnap.artifact.oci.read import list_artifacts, load
    from coldsnap.cli.stores import store_of
    from coldsnap.render.artifacts import list_text

    store = store_of(session)
    found = list(reversed(list_artifacts(store)))

    payloads: dict[str, str] = {}

    def count(entry: Entry) -> int | None:
        try:
            artifact = load(store, entry.manifest)
        except ColdSnapError:
            return None
        payloads[entry.manifest] = payload_state(store, artifact.manifest)
        return artifact.bytes

    sizes = [(entry, count(entry)) for entry in found]
    session.answer(
        lambda: list_text(sizes, session.palette, payloads),
        [
            {**vars(entry), "bytes": total, "payload_fault": payloads.get(entry.manifest) or None}
            for entry, total in sizes
        ],
    )


@command(
    app,
    fleet=True,
    store=True,
    examples="""
        coldsnap artifact inspect demo
        coldsnap artifact inspect sha256:9be1 --size
        coldsnap artifact inspect demo --search-payload
    """,
)
def inspect(
    session: Session,
    ref: Annotated[str, _REF],
    size: Annotated[
        bool, typer.Option("--size", help="Show files, processes and kinds of memory.")
    ] = False,
    search_payload: Annotated[
        bool,
        typer.Option(
            "--search-payload",
            help="Look for bytes of the payload in all other files; exit 1 if there are.",
        ),
    ] = False,
) -> None:
    """Show what a capture holds, where its bytes are and where it can be restored."""
    from coldsnap.artifact.oci.payload_state import payload_state
    from coldsnap.artifact.oci.read import find
    from coldsnap.artifact.oci.read import inspect as inspect_artifact
    from coldsnap.cli.stores import store_of
    from coldsnap.render.artifacts import inspect_text

    store = store_of(session)
    artifact = find(store, ref)
    if search_payload:
        raise typer.Exit(_search(session, store, artifact))
    state = payload_state(store, artifact.manifest)
    session.answer(
        lambda: inspect_text(artifact, session.palette, sizes=size, payload=state),
        {**inspect_artifact(artifact), "payload_fault": state or None},
    )


def _search(session: Session, store: "Store", artifact: "Artifact") -> int:
    """Say whether there are model bytes outside of the payload; 1 if there are."""
    from coldsnap.artifact.oci.payload_found import find_payload
    from coldsnap.render.artifact_memory import search_text
    from coldsnap.render.quantities import size

    told = 0

    def progress(done: int) -> None:
        nonlocal told
        if done - told >= _TOLD_EVERY:
            told = done
            session.story(f"searched {size(done)}")

    found = find_payload(store, artifact, progress)
    session.answer(lambda: search_text(found, session.palette), found.to_json())
    return int(bool(found.searched.hits))


@command(
    app,
    fleet=True,
    store=True,
    examples="""
        coldsnap artifact verify demo
        coldsnap artifact verify demo --quick
    """,
)
def verify(
    session: Session,
    ref: Annotated[str, _REF],
    quick: Annotated[
        bool, typer.Option("--quick", help="Trust records of unchanged files; hash the others.")
    ] = False,
) -> None:
    """Check every byte of a capture against its digests."""
    from coldsnap.artifact.oci.read import find
    from coldsnap.artifact.oci.verify import verify as verify_artifact
    from coldsnap.cli.stores import store_of
    from coldsnap.render.quantities import duration, plural, size

    store = store_of(session)
    digest = find(store, ref).digest
    done = verify_artifact(store, digest, "record" if quick else "full")
    session.answer(
        f"intact: {digest}\n  {plural(done.files, 'file')}, {size(done.bytes)}, "
        f"{size(done.bytes_hashed)} hashed in {duration(done.seconds)}",
        done.to_json(),
    )


@command(
    app,
    fleet=True,
    store=True,
    examples="""
        coldsnap artifact diff demo sha256:9be1
        coldsnap artifact diff before after --json
    """,
)
def diff(
    session: Session,
    first: Annotated[str, _REF],
    second: Annotated[str, _REF],
) -> None:
    """Show in what two captures differ."""
    from coldsnap.artifact.oci.read import find
    from coldsnap.cli.stores import store_of
    from coldsnap.render.artifact_diff import diff_text, differences

    store = store_of(session)
    one, two = find(store, first), find(store, second)
    session.answer(
        lambda: diff_text(one, two, session.palette),
        [vars(difference) for difference in differences(one, two)],
    )


@command(
    app,
    fleet=True,
    store=True,
    examples="""
        coldsnap artifact delete demo
        coldsnap artifact delete sha256:9be1 --yes --collect
    """,
)
def delete(
    session: Session,
    ref: Annotated[str, _REF],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    collect: Annotated[
        bool, typer.Option("--collect", help="Also free the bytes that nothing needs now.")
    ] = False,
) -> None:
    """Take a capture out of the store; its bytes go when nothing else needs them."""
    from coldsnap.artifact.oci.collect import collect as collect_garbage
    from coldsnap.artifact.oci.collect import delete as delete_artifact
    from coldsnap.artifact.oci.read import find
    from coldsnap.cli.confirm import confirm
    from coldsnap.cli.holders import held_by, let_go, why_held
    from coldsnap.cli.stores import store_of
    from coldsnap.render.quantities import size

    store = store_of(session)
    artifact = find(store, ref)
    named = f" ({', '.join(artifact.tags)})" if artifact.tags else ""
    confirm(f"Delete {artifact.digest}{named}, {size(artifact.bytes)}?", yes=yes, stream=sys.stderr)
    entry = delete_artifact(store, artifact.digest)
    words = f"deleted {entry.manifest}"
    answer = {"deleted": entry.manifest, "bytes_freed": 0}
    if not collect:
        session.answer(f"{words}; --collect frees its bytes", answer)
        return
    let_go(store)
    freed = collect_garbage(store).bytes
    held = held_by(store, entry.manifest)
    why = "" if freed and not held else why_held(held)
    session.answer(
        f"{words}; {size(freed)} freed{why}", {**answer, "bytes_freed": freed, "held_by": held}
    )
