"""``coldsnap runtime``: the pack that is staged on hosts."""

from pathlib import Path
from typing import Annotated, Any

import typer

from coldsnap.cli.options import command, group
from coldsnap.cli.session import Session

app = group("Build, show, verify and clean up the runtime pack.")

_PACK = typer.Argument(
    metavar="[PACK]", help="Archive or folder of a pack. Default: this version's, built if needed."
)


@command(
    app,
    examples="""
        coldsnap runtime build
        COLDSNAP_CRIU=/opt/criu coldsnap runtime build --json
    """,
)
def build(session: Session) -> None:
    """Build the runtime pack of this version, unless it is built already."""
    from dataclasses import asdict

    from coldsnap.cli.wiring import built_runtime
    from coldsnap.render.quantities import size

    made = built_runtime(session)
    session.answer(
        f"{made.digest}  {size(made.archive_bytes)}\n  {made.archive}",
        asdict(made),
    )


@command(
    app,
    examples="""
        coldsnap runtime show
        coldsnap runtime show --files
    """,
)
def show(
    session: Session,
    pack: Annotated[Path | None, _PACK] = None,
    files: Annotated[bool, typer.Option("--files", help="List every file.")] = False,
) -> None:
    """Show what a runtime pack holds: versions, origins, sizes."""
    from coldsnap.render.columns import pairs, table
    from coldsnap.render.quantities import plural, size
    from coldsnap.store.runtime import show as show_pack

    found = show_pack(pack or _current(session))

    def text() -> str:
        head = f"{found['digest']}  {size(found['bytes'])} in {plural(len(found['files']), 'file')}"
        parts = [head, pairs(sorted(found["facts"].items()), session.palette, indent="  ")]
        if files:
            rows = [(size(f["bytes"]), f["path"]) for f in found["files"]]
            parts.append(table((), rows, right=(0,), indent="  "))
        return "\n\n".join(parts)

    session.answer(text, found)


@command(
    app,
    examples="""
        coldsnap runtime verify
        coldsnap runtime verify pack.tar
    """,
)
def verify(
    session: Session,
    pack: Annotated[Path | None, _PACK] = None,
    expect: Annotated[
        str | None, typer.Option(metavar="DIGEST", help="Digest that it must have.")
    ] = None,
) -> None:
    """Hash every file of a runtime pack and compare with its listing."""
    from coldsnap.store.runtime import show as show_pack
    from coldsnap.store.runtime import verify as verify_pack

    place = pack or _current(session)
    result = verify_pack(place, expect)
    session.answer(f"intact: {show_pack(place)['digest']}\n  {place}", result)


@command(
    app,
    fleet=True,
    examples="""
        coldsnap runtime gc
        coldsnap runtime gc -i inventories/prod.yaml gpu-1
    """,
)
def gc(
    session: Session,
    hosts: Annotated[
        list[str] | None,
        typer.Argument(metavar="[HOST]...", help="Hosts or groups; all if none is named."),
    ] = None,
) -> None:
    """Remove runtime packs of other versions from hosts, except those that units use."""
    from coldsnap.cli.wiring import fleet_of, runtime_of, select
    from coldsnap.engine.place import runtime_place
    from coldsnap.engine.runs import new_id
    from coldsnap.sdk.host import OperationRequest

    done: dict[str, dict[str, list[Any]]] = {}
    with fleet_of(session) as fleet:
        runtime = runtime_of(session, fleet)
        names = select(fleet, hosts or ())
        for error in fleet.connect(names).values():
            raise error
        for name in names:
            job = f"{new_id()}.runtime-gc"
            arguments = {"verb": "pack.gc", "request": {"keep": [runtime.digest]}, "job": job}
            place = runtime_place(fleet.host(name), runtime)
            operation = "coldsnap_core.operations:runtime_verb"
            request = OperationRequest(operation, {**arguments, **place}, job)
            done[name] = fleet.host(name).perform(request, timeout=600.0).result
    session.answer("\n".join(f"{name}: {_tidied(found)}" for name, found in done.items()), done)


def _tidied(found: dict[str, list[Any]]) -> str:
    """What `pack.gc` did on a host, as a line."""
    from coldsnap.render.quantities import plural

    gone = plural(len(found["removed"]), "pack")
    text = f"{gone} removed, {len(found['kept'])} kept"
    ended = found["ended"]
    return f"{text}; {plural(len(ended), 'crashed generation')} let go" if ended else text


def _current(session: Session) -> Path:
    from coldsnap.cli.wiring import built_runtime

    return Path(built_runtime(session).archive)
