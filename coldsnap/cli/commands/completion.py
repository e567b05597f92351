"""``coldsnap completion``."""

from enum import StrEnum
from typing import Annotated

import typer

from coldsnap.cli.options import command, group
from coldsnap.cli.session import Session

app = group("Print the completion script of a shell.")


class Shell(StrEnum):
    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


@command(
    app,
    examples="""
        source <(coldsnap completion bash)
        coldsnap completion zsh > ~/.zfunc/_coldsnap
        coldsnap completion fish > ~/.config/fish/completions/coldsnap.fish
    """,
)
def completion(
    session: Session,
    shell: Annotated[Shell, typer.Argument(metavar="SHELL", help="bash, zsh or fish.")],
) -> None:
    """Print the completion script of a shell."""
    from typer.completion import get_completion_script  # type: ignore[attr-defined]

    script = get_completion_script(
        prog_name="coldsnap", complete_var="_COLDSNAP_COMPLETE", shell=shell.value
    )
    session.answer(script, {"shell": shell.value, "script": script})
