"""The plan language as typed models: the source of plan.schema.json and template.schema.json.

A document is checked against the schema first (every error with its place), then the parts are
built from these models once their expressions are filled in.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, StringConstraints

from coldsnap.plan.model import Driver, OnFailure, VariableType
from coldsnap.sdk.spec import Duration, Spec
from coldsnap.sdk.topology import Group, Id, Model, Service, Unit, Worker

DEFAULT_STORE = "oci-layout:{state_dir}/store"

StepId = Annotated[
    str,
    StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$"),
    Field(description="letters, digits, - and _; at most 64"),
]
VariableName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,63}$")]
TypeName = Annotated[
    str, StringConstraints(pattern=r"^[A-Za-z][A-Za-z0-9_]*\.[A-Za-z][A-Za-z0-9_-]*$")
]


class VariableDoc(Spec):
    """A variable of a plan, or an input of a template."""

    type: VariableType
    """Kind of value; `path` is a file name, made absolute from the file that gives it."""
    default: Any = None
    """Value if none is given. Without a default the variable must be given."""
    description: str = ""
    """What it is for, in one line."""
    enum: Annotated[tuple[Any, ...], Field(min_length=1)] | None = None
    """The values that are allowed."""


class RetryDoc(Spec):
    """How often a failed step is tried again."""

    attempts: Annotated[int, Field(ge=1, le=100)] = 1
    """Tries in all; 1 means no retry."""
    backoff: Literal["fixed", "exponential"] = "fixed"
    """Whether the delay stays or doubles."""
    delay: Duration = 1.0
    """Before the second try."""
    max_delay: Duration = 60.0
    """The delay never grows past this."""


class StepDoc(Spec):
    """A node of the plan: a step of some `type`, or a template by `uses`."""

    model_config = ConfigDict(populate_by_name=True)

    id: StepId | None = None
    """Name in this plan; the verb of its type or template if absent."""
    type: TypeName | None = None
    """Step type, `<pack>.<verb>`; see `coldsnap step list`."""
    uses: TypeName | None = None
    """Template, `<pack>.<verb>`, that expands to several steps."""
    needs: tuple[str, ...] = ()
    """Ids of the steps that must be done before."""
    hosts: str | None = None
    """Host or group of the inventory that narrows where it runs."""
    with_: dict[str, Any] = Field(default={}, alias="with")
    """Parameters of the type, or inputs of the template."""
    when: bool | str | None = None
    """Expression; the step is skipped where it is false."""
    timeout: Duration | None = None
    """Longest time for one attempt."""
    retry: RetryDoc | None = None
    on_failure: Literal["recover", "continue", "stop"] | None = None
    """recover: put everything back, then stop (the default). continue: skip what needs it.
    stop: leave everything as it is."""


class PlanDoc(Spec):
    """A ColdSnap plan: variables, topology and steps."""

    coldsnap: Literal["plan/v1"]
    """Format of this document."""
    name: Id
    """Name of the plan, in reports and in the store."""
    description: str = ""
    vars: dict[VariableName, VariableDoc] = Field(default={})
    """Variables: set by --var, --var-file, COLDSNAP_VAR_<NAME>, else their default."""
    engine: str | None = None
    """Engine pack that serves the model, such as `vllm`."""
    driver: Driver = "auto"
    """Snapshot driver; `auto` takes the newest that every placed host supports."""
    model: Model | None = None
    units: Annotated[tuple[Unit, ...], Field(min_length=1)] | None = None
    """Launch units; one named u0 if absent and there is an engine."""
    workers: Annotated[tuple[Worker, ...], Field(min_length=1)] | None = None
    """Accelerator-owning slots; one per unit if absent."""
    groups: Annotated[tuple[Group, ...], Field(min_length=1)] | None = None
    """Ordered ranks; the world group is implied."""
    services: Annotated[tuple[Service, ...], Field(min_length=1)] | None = None
    """Roles; implied by the workers' `service`."""
    store: str = DEFAULT_STORE
    """Where capsules and payloads live: a store URI."""
    steps: Annotated[tuple[StepDoc, ...], Field(min_length=1, max_length=1000)]


class TemplateDoc(Spec):
    """A template that a pack brings; see coldsnap.plan.templates."""

    coldsnap: Literal["template/v1"]
    name: TypeName
    """`<pack>.<file name>`."""
    description: str = ""
    inputs: dict[VariableName, VariableDoc] = Field(default={})
    """What a use may give in `with`."""
    steps: Annotated[tuple[StepDoc, ...], Field(min_length=1, max_length=200)]
    outputs: dict[VariableName, str] = Field(default={})
    """Name -> expression over the template's steps."""


ON_FAILURE = {value.value: value for value in OnFailure}
