from __future__ import annotations

from coldsnap.sdk import Duration, Spec


class LaunchSpec(Spec):
    """Start the unit's engine in namespaces of its own and wait until it is ready."""

    expose: bool = True
    """Publish the unit's ports on the host once it is ready."""
    ready_timeout: Duration = 600.0
    """How long the engine may take to become ready."""
    unless_captured: bool = False
    """Do nothing when the store holds a capture of this plan's request already."""
    plain: bool = False
    """Start the engine itself where the plan's driver (n580) would park a template of it first: the
    baseline of measurements, never captured."""
    replace: bool = False
    """Take the place of a live generation that another launch started; it is stopped afterwards."""
