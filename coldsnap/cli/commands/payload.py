"""``coldsnap payload``: importing a module adds its commands, in the order of ``--help``."""

from coldsnap.cli.commands.payload_app import app
from coldsnap.cli.commands.payload_packs import list_, pack, verify  # isort: split

from coldsnap.cli.commands.payload_bench import bench
from coldsnap.cli.commands.payload_hydrate import hydrate, record

__all__ = ["app", "bench", "hydrate", "list_", "pack", "record", "verify"]
