"""What an inventory file may say: the typed model, source of ``schemas/inventory.schema.json``."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, JsonValue, StringConstraints

from coldsnap.fleet.entries import CONNECT_SECONDS
from coldsnap.sdk.spec import Duration, Spec

Name = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$")]
AbsolutePath = Annotated[str, StringConstraints(pattern=r"^/")]
Text = Annotated[str, StringConstraints(min_length=1)]
Reference = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][\w.]*:[A-Za-z_]\w*$")]
"""``package.module:Name`` of a fact or operation."""


class Variables(BaseModel):
    """Variables of a host or a group.

    Those named here are known to coldsnap, others are yours: expressions in plans read them as
    ``host.vars.NAME``.
    """

    model_config = ConfigDict(extra="allow", frozen=True, use_attribute_docstrings=True)

    state_dir: AbsolutePath | None = None
    """Folder of coldsnap on the host; /var/lib/coldsnap."""
    python: Text | None = None
    """Python >= 3.10 on the host; python3, on @local the one that runs coldsnap."""
    sudo: bool | None = None
    """Run everything through sudo, without a password."""
    sudo_user: Text | None = None
    """User that sudo changes to; root."""
    models: AbsolutePath | dict[str, AbsolutePath] | None = None
    """Folder of the models on the host, or folder of each model by its id."""


class LocalHost(Spec):
    """This machine."""

    connector: Literal["@local"]
    vars: Variables = Variables()


class SshHost(Spec):
    """A machine that is reached by ssh, with keys; passwords are never asked for."""

    connector: Literal["@ssh"]
    hostname: Text | None = None
    """Name or address; the host's name in this file if absent."""
    port: Annotated[int, Field(ge=1, le=65535)] | None = None
    """22, or what ``config`` says."""
    user: Text | None = None
    key: Text | None = None
    """Private key file; without it the agent's and the user's own keys are tried."""
    known_hosts: Text | None = None
    """File with the host's key; ~/.ssh/known_hosts."""
    strict: Literal["yes", "accept-new", "no"] = "yes"
    """What to do with an unknown host key."""
    config: Text | None = None
    """An ssh_config file; ~/.ssh/config."""
    connect_timeout: Duration = CONNECT_SECONDS
    vars: Variables = Variables()


class DockerHost(Spec):
    """A running container of the local docker daemon."""

    connector: Literal["@docker"]
    container: Text
    """Its name or id."""
    vars: Variables = Variables()


class CannedAnswer(Spec):
    fact: Reference
    args: dict[str, JsonValue] = Field(default_factory=dict)
    """Only for questions whose arguments contain these; ``*`` stands for any value."""
    value: JsonValue


class FakeHost(Spec):
    """A host that is not there: answers are given here, operations are recorded only."""

    connector: Literal["@fake"]
    facts: dict[Reference, JsonValue] = Field(default_factory=dict)
    """Fact -> answer, whatever its arguments."""
    answers: tuple[CannedAnswer, ...] = ()
    """Answers that depend on arguments; the first that fits, before `facts`."""
    results: dict[Reference, JsonValue] = Field(default_factory=dict)
    """Operation -> result of its verb."""
    unreachable: str = ""
    """A reason makes the host unreachable."""
    vars: Variables = Variables()


HostSpec: TypeAlias = LocalHost | SshHost | DockerHost | FakeHost

HOST_TYPES: dict[str, type[Spec]] = {
    "@local": LocalHost,
    "@ssh": SshHost,
    "@docker": DockerHost,
    "@fake": FakeHost,
}


class GroupSpec(Spec):
    hosts: tuple[Name, ...] = ()
    """Names of hosts of this file; the group ``all`` has all of them without saying so."""
    vars: Variables = Variables()


class InventorySpec(Spec):
    """An inventory: the hosts that plans run on."""

    coldsnap: Literal["inventory/v1"]
    description: str = ""
    vars: Variables = Variables()
    """Variables of all hosts."""
    hosts: dict[Name, Annotated[HostSpec, Field(discriminator="connector")]]
    groups: dict[Name, GroupSpec] = Field(default_factory=dict)
    """A host's own variables win over those of its groups, the last group over the first."""


def inventory_schema() -> dict[str, Any]:
    """JSON Schema 2020-12 of an inventory file.

    Connectors are told apart by if/then: with pydantic's oneOf an editor shows one wrong field
    as four failed alternatives.
    """
    schema = InventorySpec.model_json_schema()
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    schema["title"] = "ColdSnap inventory"
    hosts = schema["properties"]["hosts"]
    pattern, choice = next(iter(hosts["patternProperties"].items()))
    branches = [
        {
            "if": {"properties": {"connector": {"const": connector}}, "required": ["connector"]},
            "then": {"$ref": choice["discriminator"]["mapping"][connector]},
        }
        for connector in HOST_TYPES
    ]
    hosts["patternProperties"] = {
        pattern: {
            "type": "object",
            "required": ["connector"],
            "properties": {"connector": {"enum": list(HOST_TYPES)}},
            "allOf": branches,
        }
    }
    hosts["additionalProperties"] = False
    return schema
