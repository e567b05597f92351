"""``coldsnap capabilities``."""

import json

from coldsnap.cli.options import command, group
from coldsnap.cli.session import Session

app = group("Print what this build can do, as JSON.")


@command(
    app,
    examples="""
        coldsnap capabilities
        coldsnap capabilities | jq .protocols
    """,
)
def capabilities(session: Session) -> None:
    """Print what this build can do, as JSON."""
    from importlib.metadata import entry_points

    from coldsnap.artifact.capabilities import EngineCapability, describe_capabilities
    from coldsnap.cli.requests import OPERATIONS
    from coldsnap.plan.registry import ENGINES_GROUP

    engines = [
        EngineCapability(
            point.name,
            point.dist.name if point.dist else point.module,
            point.dist.version if point.dist else "",
            OPERATIONS,
        )
        for point in sorted(entry_points(group=ENGINES_GROUP), key=lambda point: point.name)
    ]
    document = describe_capabilities(
        {engine.engine: engine for engine in engines}.values(), operations=OPERATIONS
    ).to_json()
    session.answer(json.dumps(document, indent=2), document)
