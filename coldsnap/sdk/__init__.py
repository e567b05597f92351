"""Everything that the author of a step type or of an engine pack imports."""

from coldsnap.artifact.errors import ColdSnapError, Source
from coldsnap.sdk.barrier import Barrier, BarrierOutcome
from coldsnap.sdk.change import Action, Change, Row, unchanged
from coldsnap.sdk.engine import Acceptance, Engine, HttpCall, Launch, drivers_of
from coldsnap.sdk.host import FactRequest, Host, JobEvent, OperationRequest, OperationResult
from coldsnap.sdk.pack import Pack
from coldsnap.sdk.spec import Duration, Size, Spec, parse_duration, parse_size
from coldsnap.sdk.step import Outputs, PlanView, RuntimeRef, Scope, Seen, Step, StepContext
from coldsnap.sdk.topology import Group, Model, Mount, Port, Service, Topology, Unit, Worker

__all__ = [
    "Acceptance",
    "Action",
    "Barrier",
    "BarrierOutcome",
    "Change",
    "ColdSnapError",
    "Duration",
    "Engine",
    "FactRequest",
    "Group",
    "Host",
    "HttpCall",
    "JobEvent",
    "Launch",
    "Model",
    "Mount",
    "OperationRequest",
    "OperationResult",
    "Outputs",
    "Pack",
    "PlanView",
    "Port",
    "Row",
    "RuntimeRef",
    "Scope",
    "Seen",
    "Service",
    "Size",
    "Source",
    "Spec",
    "Step",
    "StepContext",
    "Topology",
    "Unit",
    "Worker",
    "drivers_of",
    "parse_duration",
    "parse_size",
    "unchanged",
]
