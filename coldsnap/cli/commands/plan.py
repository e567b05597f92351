"""``coldsnap plan``: importing a module adds its commands, in the order of ``--help``."""

from coldsnap.cli.commands.plan_app import app
from coldsnap.cli.commands.plan_read import graph, show, validate
from coldsnap.cli.commands.plan_run import apply, diff, resume, rollback
from coldsnap.cli.commands.plan_write import new, pin

__all__ = ["app", "apply", "diff", "graph", "new", "pin", "resume", "rollback", "show", "validate"]
