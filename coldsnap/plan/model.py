"""The typed plan: what `load_plan` gives and what the engine and the command line build on.

Everything here is frozen data. Expressions (``{{ ... }}``) in `StepNode.raw_with` and
`StepNode.when` are unresolved: they are rendered per host and unit by
`coldsnap.plan.rendering.Renderer`, because they may refer to a host or to outputs of other steps.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from coldsnap.artifact.errors import Source
from coldsnap.sdk.topology import Model, Topology

if TYPE_CHECKING:
    from coldsnap.plan.language import VariableDoc

Driver: TypeAlias = Literal["auto", "criu", "c580", "n580", "n610"]
VariableType: TypeAlias = Literal["string", "int", "float", "bool", "list", "map", "path"]


class Origin(StrEnum):
    """Where a variable's value came from, strongest first."""

    FLAG = "flag"
    """``--var name=value``"""
    FILE = "var-file"
    """``--var-file``"""
    ENV = "env"
    """``COLDSNAP_VAR_<NAME>``"""
    DEFAULT = "default"


class OnFailure(StrEnum):
    RECOVER = "recover"
    """Put back what this step and the steps before it changed, then stop."""
    CONTINUE = "continue"
    """Record the failure; steps that need this one are skipped, others go on."""
    STOP = "stop"
    """Stop the run and leave everything as it is."""


@dataclass(frozen=True)
class Variable:
    """One declared variable with its resolved value."""

    name: str
    type: VariableType
    value: Any
    """A JSON value of `type`; a ``path`` is absolute."""
    origin: Origin
    place: str = ""
    """The var file, or the name of the environment variable; empty otherwise."""
    description: str = ""


@dataclass(frozen=True)
class Retry:
    attempts: int = 1
    """Tries in all; 1 means no retry."""
    backoff: Literal["fixed", "exponential"] = "fixed"
    delay: float = 1.0
    """Seconds before the second try."""
    max_delay: float = 60.0
    """Upper bound of the growing delay, seconds."""

    def wait_before(self, attempt: int) -> float:
        """Seconds to wait before try number `attempt` (2, 3, ...)."""
        if attempt <= 1:
            return 0.0
        factor = 2 ** min(attempt - 2, 62) if self.backoff == "exponential" else 1
        return min(self.delay * factor, self.max_delay)


@dataclass(frozen=True, eq=False)
class Frame:
    """The scope in which a step's expressions are read: the plan itself, or one template use.

    The plan's own frame has `parent` None and no inputs. Frames refer to each other both ways, so
    they are compared by identity.
    """

    use: str = ""
    """Expanded id of the template use; empty for the plan."""
    template: str = ""
    """``pack.name``; empty for the plan."""
    inputs: Mapping[str, Any] = field(default_factory=dict)
    """Name -> raw value with defaults filled in; given values are read in `parent`."""
    given: frozenset[str] = frozenset()
    """Inputs that the use gave (read in `parent`); the others are constants."""
    steps: Mapping[str, str] = field(default_factory=dict)
    """Local step id -> expanded id."""
    uses: Mapping[str, Frame] = field(default_factory=dict, repr=False)
    """Local id of a template use -> its frame."""
    outputs: Mapping[str, Any] = field(default_factory=dict)
    """Output of the template -> raw value, read in this frame."""
    declared: Mapping[str, VariableDoc] = field(default_factory=dict)
    """Input -> its declaration."""
    sources: Mapping[str, Source] = field(default_factory=dict, repr=False)
    """Place of each given input (``with.prompt``) and each output (``outputs.answer``)."""
    parent: Frame | None = field(default=None, repr=False)


@dataclass(frozen=True)
class StepNode:
    """One step of the expanded plan."""

    id: str
    """``probe``, or ``capture.probe`` for a step that a template brought."""
    type: str
    """``core.probe``"""
    needs: tuple[str, ...] = ()
    """Ids of steps (never of template uses), in document order."""
    hosts: str | None = None
    """Host or group that narrows where it runs; None takes the plan's own placement."""
    raw_with: Mapping[str, Any] = field(default_factory=dict)
    when: str | None = None
    """Expression text without braces; None means always."""
    timeout: float | None = None
    """Seconds for one attempt."""
    retry: Retry = Retry()
    on_failure: OnFailure = OnFailure.RECOVER
    source: Source | None = None
    """Where the step stands, in the plan or in its template's file."""
    template: str | None = None
    """``pack.name`` of the template that brought it."""
    use: str | None = None
    """Id of the outermost template use in the plan document that brought it."""
    frame: Frame = field(default_factory=Frame, repr=False, compare=False)
    outer_when: tuple[tuple[str, Frame], ...] = field(default=(), compare=False)
    """``when`` of the template uses around it; all must hold."""
    sources: Mapping[str, Source] = field(default_factory=dict, repr=False)
    """Place of each field: ``when``, ``with``, ``with.accept.prompt``."""


@dataclass(frozen=True)
class Plan:
    path: str
    """As the user named it."""
    name: str
    description: str
    document_sha256: str
    """``sha256:...`` of the file's bytes."""
    variables: Mapping[str, Variable]
    engine: str | None
    """Name of an engine pack, or None for a plan that captures nothing."""
    driver: Driver
    model: Model | None
    """With variables filled in."""
    topology: Topology | None
    """None when the plan has neither `engine` nor `units`. Expressions that need a host
    (``{{ host.vars.X }}`` in a unit's command or env) are kept; `Renderer.unit` fills them in."""
    store: str
    """Store URI; ``{state_dir}`` in it is filled in per host."""
    steps: tuple[StepNode, ...]
    """Expanded, in document order."""
    request: Mapping[str, Any]
    """What identifies the operation; see coldsnap.plan.request."""
    request_sha256: str
    raw_units: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """Unit id -> as written, variables filled in, for `Renderer.unit`."""
    unit_sources: Mapping[str, Mapping[str, Source]] = field(default_factory=dict, repr=False)
    """Unit id -> place of each of its fields (``command[3]``)."""

    def step(self, step_id: str) -> StepNode:
        """The step of that id.

        Raises:
            KeyError: if there is none.
        """
        for node in self.steps:
            if node.id == step_id:
                return node
        raise KeyError(step_id)

    def values(self) -> dict[str, Any]:
        """Variable name -> value, as expressions see them."""
        return {name: variable.value for name, variable in self.variables.items()}
