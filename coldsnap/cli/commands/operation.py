"""``capture``, ``restore``, ``sleep``, ``wake`` ``--request-json``: operations for managers."""

from typing import Annotated

import typer

from coldsnap.cli.options import command, group
from coldsnap.cli.session import Session

capture = group("Carry out a capture request (format 4).")
restore = group("Carry out a restore request (format 4).")
sleep = group("Carry out a sleep request (format 4).")
wake = group("Carry out a wake request (format 4).")

_REQUEST = typer.Option("--request-json", metavar="FILE", help="The request; - is stdin.")
_RECEIPT = typer.Option(
    "--receipt-json", metavar="FILE", help="Write the operation receipt; - is stdout."
)


@command(
    capture,
    "capture",
    fleet=True,
    examples="""
        coldsnap capture --request-json request.json
        coldsnap capture --request-json - --receipt-json receipt.json < request.json
    """,
)
def capture_command(
    session: Session,
    request: Annotated[str, _REQUEST],
    receipt: Annotated[str | None, _RECEIPT] = None,
) -> None:
    """Carry out a capture request (format 4)."""
    _carry_out(session, "capture", request, receipt)


@command(
    restore,
    "restore",
    fleet=True,
    examples="""
        coldsnap restore --request-json request.json --receipt-json receipt.json
    """,
)
def restore_command(
    session: Session,
    request: Annotated[str, _REQUEST],
    receipt: Annotated[str | None, _RECEIPT] = None,
) -> None:
    """Carry out a restore request (format 4)."""
    _carry_out(session, "restore", request, receipt)


@command(
    sleep,
    "sleep",
    fleet=True,
    examples="""
        coldsnap sleep --request-json request.json
    """,
)
def sleep_command(
    session: Session,
    request: Annotated[str, _REQUEST],
    receipt: Annotated[str | None, _RECEIPT] = None,
) -> None:
    """Carry out a sleep request (format 4)."""
    _carry_out(session, "sleep", request, receipt)


@command(
    wake,
    "wake",
    fleet=True,
    examples="""
        coldsnap wake --request-json request.json
    """,
)
def wake_command(
    session: Session,
    request: Annotated[str, _REQUEST],
    receipt: Annotated[str | None, _RECEIPT] = None,
) -> None:
    """Carry out a wake request (format 4)."""
    _carry_out(session, "wake", request, receipt)


def _carry_out(session: Session, operation: str, source: str, receipt: str | None) -> None:
    """Compile the request to a plan, apply it, leave the receipt that was asked for."""
    from pathlib import Path

    from coldsnap.artifact.receipt import check_destination
    from coldsnap.cli import requests
    from coldsnap.cli.carrying import carry_out, say
    from coldsnap.cli.plans import load_made, working
    from coldsnap.engine.applying import apply
    from coldsnap.plan.registry import Registry

    request = requests.read(source, operation)
    if receipt is not None and receipt != "-":
        check_destination(receipt, request.sha256)
    registry = Registry.installed()
    name = requests.template_name(request)
    text = requests.plan_text(request, registry.template(name) if name else None)
    loaded = load_made(text, f"request {request.id}", registry)
    with working(session, loaded) as setup:
        result = carry_out(session, setup, apply)
    if receipt is not None:
        requests.publish(request, Path(result.folder), receipt)
    say(session, result, quiet=receipt == "-")
    raise typer.Exit(result.exit_code)
