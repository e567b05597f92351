"""Reading inventories: YAML files of ours, pyinfra's own ``.py`` files, and ``@local``."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from coldsnap.artifact.errors import ColdSnapError
from coldsnap.fleet.entries import FakeAnswer, FakeAnswers, HostEntry, Inventory
from coldsnap.fleet.inventory import (
    HOST_TYPES,
    DockerHost,
    FakeHost,
    GroupSpec,
    HostSpec,
    InventorySpec,
    SshHost,
    Variables,
)
from coldsnap.plan.document import Document, read_document
from coldsnap.plan.problems import Problems, hint, shown

DEFAULT_STATE_DIR = "/var/lib/coldsnap"
LOCAL = "@local"
"""Instead of a path: an inventory of this machine alone."""


def read_inventory(path: str) -> Inventory:
    """Hosts and groups of a YAML inventory.

    Raises:
        ColdSnapError: ``inventory.*`` with the place in the file; further errors in its `more`.
    """
    if path == LOCAL:
        entry = HostEntry("local", "local", vars=with_defaults({}, "local"))
        return Inventory(path, {"local": entry}, {})
    try:
        document = read_document(path)
    except ColdSnapError as error:
        raise _renamed(error) from error
    spec = _typed(document)
    _check_names(document, spec)
    return _resolved(document, spec)


def with_defaults(variables: Mapping[str, Any], connector: str) -> dict[str, Any]:
    """Variables with those that coldsnap knows filled in."""
    python = sys.executable if connector == "local" else "python3"
    return {"state_dir": DEFAULT_STATE_DIR, "python": python, "sudo": False, **variables}


def _renamed(error: ColdSnapError) -> ColdSnapError:
    """The YAML reader speaks of plans."""
    code = error.code.replace("plan.", "inventory.", 1)
    message = error.message.replace("a plan may", "an inventory may")
    return replace(error, code=code, message=message)


def _typed(document: Document) -> InventorySpec:
    data = document.data
    if not isinstance(data, dict):
        raise ColdSnapError(
            "inventory.invalid",
            f"{document.file} is not an inventory: it holds {shown(data)}",
            source=document.source(()),
            remedy="start it with  coldsnap: inventory/v1",
        )
    try:
        return InventorySpec.model_validate(data)
    except ValidationError as error:
        problems = Problems()
        for found in error.errors():
            _explain(document, found, problems)
        problems.raise_if_any()
        raise


def _explain(document: Document, found: Any, problems: Problems) -> None:
    location = tuple(found["loc"])
    path = tuple(part for part in location if part not in HOST_TYPES and part != "[key]")
    name = str(path[-1]) if path else ""
    kind = found["type"]
    if kind == "extra_forbidden":
        problems.add(
            "inventory.unknown-field",
            f"unknown field {shown(name)} in {_owner(path[:-1])}",
            document.source(path, key=True),
            remedy=_elsewhere(name) or hint(name, _fields(location)),
        )
    elif kind in ("missing", "union_tag_not_found"):
        lacking = "connector" if kind == "union_tag_not_found" else name
        owner = path if kind == "union_tag_not_found" else path[:-1]
        problems.add(
            "inventory.missing-field",
            f"{_owner(owner)} has no {shown(lacking)}",
            document.source(owner, key=True),
            remedy=_missing_remedy(lacking),
        )
    elif kind == "union_tag_invalid":
        given = document.data["hosts"][name].get("connector")
        problems.add(
            "inventory.unknown-connector",
            f"unknown connector {shown(given)}",
            document.source((*path, "connector")),
            remedy=hint(str(given), HOST_TYPES),
        )
    else:
        problems.add(
            "inventory.invalid-value",
            f"{_dotted(path)}: {found['msg'][:1].lower()}{found['msg'][1:]}, "
            f"not {shown(found.get('input'))}",
            document.source(path, key="[key]" in location),
        )


def _missing_remedy(name: str) -> str:
    if name == "connector":
        return f"add one of {', '.join(HOST_TYPES)}"
    if name == "coldsnap":
        return "start the file with  coldsnap: inventory/v1"
    return f"add {name}"


def _fields(location: tuple[Any, ...]) -> Iterable[str]:
    """Names that are known where the unknown one stands."""
    model: type[BaseModel] = InventorySpec
    for part in location:
        if part in HOST_TYPES:
            model = HOST_TYPES[part]
    if location[:1] == ("groups",):
        model = GroupSpec
    return model.model_fields


def _elsewhere(name: str) -> str:
    """Said of a field that another connector has."""
    owners = [connector for connector, model in HOST_TYPES.items() if name in model.model_fields]
    return f"{name} is a field of {', '.join(owners)}" if owners else ""


def _owner(path: tuple[Any, ...]) -> str:
    if len(path) >= 2 and path[0] in ("hosts", "groups"):  # noqa: PLR2004
        return f"{str(path[0])[:-1]} {shown(path[1])}"
    return _dotted(path) if path else "the inventory"


def _dotted(path: tuple[Any, ...]) -> str:
    return ".".join(str(part) for part in path)


def _check_names(document: Document, spec: InventorySpec) -> None:
    problems = Problems()
    for name in ("all", *spec.groups):
        if name in spec.hosts:
            problems.add(
                "inventory.name-taken",
                f"{shown(name)} is a group, so no host can have that name",
                document.source(("hosts", name), key=True),
                remedy="rename one of them",
            )
    for group, members in spec.groups.items():
        for index, host in enumerate(members.hosts):
            if host not in spec.hosts:
                problems.add(
                    "inventory.unknown-host",
                    f"group {shown(group)} has the host {shown(host)}, which is not there",
                    document.source(("groups", group, "hosts", index)),
                    remedy=hint(host, spec.hosts),
                )
    problems.raise_if_any()


def _resolved(document: Document, spec: InventorySpec) -> Inventory:
    folder = Path(document.file).parent
    groups = {
        name: tuple(host for host in spec.hosts if host in members.hosts)
        for name, members in spec.groups.items()
        if name != "all"
    }
    hosts = {name: _entry(name, host, spec, folder) for name, host in spec.hosts.items()}
    return Inventory(document.file, hosts, groups)


def _entry(name: str, host: HostSpec, spec: InventorySpec, folder: Path) -> HostEntry:
    connector: Any = host.connector.removeprefix("@")
    variables = _given(spec.vars)
    for group, members in spec.groups.items():
        if group == "all" or name in members.hosts:
            variables |= _given(members.vars)
    variables |= _given(host.vars)
    entry = HostEntry(name, connector, vars=with_defaults(variables, connector))
    if isinstance(host, SshHost):
        return replace(
            entry, data=_ssh_data(name, host, folder), connect_timeout=host.connect_timeout
        )
    if isinstance(host, DockerHost):
        return replace(entry, data={"docker_identifier": host.container})
    return replace(entry, fake=_fake(host)) if isinstance(host, FakeHost) else entry


def _given(variables: Variables) -> dict[str, Any]:
    return variables.model_dump(exclude_unset=True, exclude_none=True)


def _ssh_data(name: str, host: SshHost, folder: Path) -> dict[str, Any]:
    data: dict[str, Any] = {
        "ssh_hostname": host.hostname or name,
        "ssh_strict_host_key_checking": host.strict,
        "ssh_port": host.port,
        "ssh_user": host.user,
        "ssh_key": _path(host.key, folder),
        "ssh_known_hosts_file": _path(host.known_hosts, folder),
        "ssh_config_file": _path(host.config, folder),
    }
    return {key: value for key, value in data.items() if value is not None}


def _path(value: str | None, folder: Path) -> str | None:
    """Relative paths are meant from the inventory's folder."""
    return None if value is None else str(Path(folder, Path(value).expanduser()).absolute())


def _fake(host: FakeHost) -> FakeAnswers:
    answers = [FakeAnswer(item.fact, item.value, item.args) for item in host.answers]
    answers += [FakeAnswer(fact, value) for fact, value in host.facts.items()]
    return FakeAnswers(tuple(answers), dict(host.results), host.unreachable)
