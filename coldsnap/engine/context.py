"""Builds what a step gets to know: its spec, its host, its unit, its plan."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import TypeVar

from coldsnap.artifact.errors import ColdSnapError
from coldsnap.engine.barrier import Barriers, InstanceBarrier
from coldsnap.engine.hosts import ReadOnlyHost
from coldsnap.engine.instances import Expansion, Instance
from coldsnap.engine.rendering import Rendering, UnknownOutput
from coldsnap.engine.setup import Setup
from coldsnap.sdk.engine import Engine
from coldsnap.sdk.host import Host, JobEvent
from coldsnap.sdk.spec import Spec
from coldsnap.sdk.step import PlanView, StepContext
from coldsnap.sdk.topology import Unit

T = TypeVar("T")


class Contexts:
    """For one preview or one walk; called from many threads."""

    def __init__(
        self,
        setup: Setup,
        expansion: Expansion,
        rendering: Rendering,
        *,
        run: str = "",
        barriers: Barriers | None = None,
        parked: Callable[[str], AbstractContextManager[object]] = lambda _host: nullcontext(),
    ) -> None:
        self._setup, self._expansion, self.rendering = setup, expansion, rendering
        self._run, self._barriers, self._parked = run, barriers, parked
        self._plan = _view(setup)
        self._engine = _engine(setup)
        self._labels = {group.node.id: group.labels for group in expansion.steps}
        self._hosts = {name: setup.fleet.host(name) for name in expansion.hosts}
        self._read_only = {name: ReadOnlyHost(host) for name, host in self._hosts.items()}

    def host(self, instance: Instance) -> Host | None:
        return self._hosts[instance.key.host] if instance.key.host else None

    def spec(self, instance: Instance) -> Spec:
        """The typed parameters during an apply, when everything must be known.

        Raises:
            ColdSnapError: ``plan.*`` with the place in the plan; ``plan.output-missing``.
        """
        return self._settled(instance, self.rendering.spec)

    def holds(self, instance: Instance) -> bool:
        """Whether its `when` holds; raises as `spec`."""
        return self._settled(instance, self.rendering.holds)

    def for_preview(self, instance: Instance) -> StepContext:
        return StepContext(
            run="",
            step=instance.key.step,
            host=self._read_only[instance.key.host] if instance.key.host else None,
            unit=self._unit(instance),
            plan=self._plan,
            engine=self._engine,
            runtime=self._setup.runtime,
            instances=self._labels[instance.key.step],
        )

    def for_apply(
        self,
        instance: Instance,
        host: Host | None,
        *,
        emit: Callable[[JobEvent], None],
        attempt: int = 1,
        deadline: float | None = None,
        redo: int = 0,
    ) -> StepContext:
        return StepContext(
            run=self._run,
            step=instance.key.step,
            host=host,
            unit=self._unit(instance),
            plan=self._plan,
            engine=self._engine,
            runtime=self._setup.runtime,
            barrier=self._barrier(instance, attempt),
            instances=self._labels[instance.key.step],
            emit=emit,
            attempt=attempt,
            deadline=deadline,
            redo=redo,
        )

    def _barrier(self, instance: Instance, attempt: int) -> InstanceBarrier | None:
        if self._barriers is None:
            return None
        return InstanceBarrier(
            self._barriers,
            instance.key.step,
            attempt,
            lambda: self._parked(instance.key.host),
        )

    def _settled(self, instance: Instance, render: Callable[[Instance], T]) -> T:
        try:
            return render(instance)
        except UnknownOutput as missing:
            raise ColdSnapError(
                "plan.output-missing",
                f"step {instance.key.step} needs {missing}, which this run did not bring",
                instance.label,
                cause="that step was skipped, or is not in the slice and has something to do",
                source=instance.node.source,
            ) from None

    def _unit(self, instance: Instance) -> Unit | None:
        return self.rendering.unit(instance) if instance.unit is not None else None


def _view(setup: Setup) -> PlanView:
    plan = setup.plan
    return PlanView(
        name=plan.name,
        driver=plan.driver,
        model=plan.model,
        topology=plan.topology,
        store=plan.store,
        request=plan.request,
        request_sha256=plan.request_sha256,
    )


def _engine(setup: Setup) -> Engine | None:
    return setup.registry.engine(setup.plan.engine) if setup.plan.engine else None
