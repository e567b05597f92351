"""``coldsnap config``."""

from typing import Annotated

import typer

from coldsnap.cli.options import command, group
from coldsnap.cli.session import Session

app = group("Show settings and where each one came from.")


@command(
    app,
    fleet=True,
    store=True,
    examples="""
        coldsnap config show
        coldsnap config show --origin
        COLDSNAP_COLOR=never coldsnap config show --origin --json
    """,
)
def show(
    session: Session,
    origin: Annotated[bool, typer.Option("--origin", help="Tell where each came from.")] = False,
) -> None:
    """Show the settings in force."""
    from coldsnap.cli.settings import SETTINGS
    from coldsnap.render.columns import Cell, table

    settings = session.settings
    rows = []
    for name, found in settings.values.items():
        row: list[str | Cell] = [name, found.value or "-"]
        if origin:
            row += [found.origin.value, found.place]
        rows.append([*row, Cell(SETTINGS[name].summary, "dim")])
    header = ("SETTING", "VALUE", *(("FROM", "WHERE") if origin else ()), "MEANING")
    session.answer(
        lambda: f"project {settings.project}\n\n" + table(header, rows, session.palette),
        {
            "project": str(settings.project),
            "settings": {
                name: {"value": f.value, "origin": f.origin.value, "place": f.place}
                for name, f in settings.values.items()
            },
        },
    )
