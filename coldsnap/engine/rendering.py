"""Expressions of instances filled in: parameters, conditions, units."""

from __future__ import annotations

from typing import Protocol

from coldsnap.engine.instances import Instance
from coldsnap.engine.preview import InstanceKey
from coldsnap.sdk.spec import Spec
from coldsnap.sdk.step import Outputs
from coldsnap.sdk.topology import Unit


class NotKnownYet(Exception):  # noqa: N818 - a state, not an error
    """An expression needs an output that is known after apply."""


class Rendering(Protocol):
    """Called from many threads."""

    def spec(self, instance: Instance) -> Spec:
        """The typed parameters.

        Raises:
            ColdSnapError: ``plan.*`` with the place in the plan.
            NotKnownYet: see there.
        """

    def holds(self, instance: Instance) -> bool:
        """Whether `when`, and that of the template uses around it, hold; raises as `spec`."""

    def unit(self, instance: Instance) -> Unit:
        """The instance's unit with the expressions that need its host; raises as `spec`."""

    def put(self, key: InstanceKey, outputs: Outputs) -> None:
        """Make outputs known to the instances that need this one."""
