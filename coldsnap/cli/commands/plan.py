"""``coldsnap plan``: its commands in the order in which ``--help`` lists them."""

from coldsnap.cli.commands import plan_write  # noqa: F401, I001 - imports add commands, in order
from coldsnap.cli.commands import plan_read  # noqa: F401
from coldsnap.cli.commands import plan_run  # noqa: F401
from coldsnap.cli.commands.plan_app import app

__all__ = ["app"]
