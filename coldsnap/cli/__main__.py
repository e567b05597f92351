"""``python -m coldsnap.cli``."""

from coldsnap.cli.main import run

run()
