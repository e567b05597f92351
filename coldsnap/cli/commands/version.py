"""``coldsnap version``."""

from coldsnap import __version__
from coldsnap.cli.options import command, group
from coldsnap.cli.session import Session

app = group("Print the version.")


@command(
    app,
    examples="""
        coldsnap version
        coldsnap version --json
    """,
)
def version(session: Session) -> None:
    """Print the version."""
    import platform

    session.answer(
        f"coldsnap {__version__}",
        {
            "coldsnap": __version__,
            "python": platform.python_version(),
            "platform": platform.platform(),
        },
    )
