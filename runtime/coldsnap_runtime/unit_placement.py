"""What may differ between where a unit was captured and where it is restored."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from coldsnap.artifact.errors import ColdSnapError
from coldsnap_runtime.unit_requests import LaunchSpec, Mount, Port, RestoreRequest


def placed(spec: LaunchSpec, request: RestoreRequest) -> LaunchSpec:
    """The captured launch with this host's ports and mount sources.

    Raises:
        ColdSnapError: ``restore.placement`` for a port or mount that was not captured.
    """
    ports = {port.name: port for port in spec.ports}
    for port in request.ports:
        if port.name not in ports:
            raise _misplaced("port", port.name, list(ports))
        ports[port.name] = Port(port.name, ports[port.name].inner, port.host, port.port)
    mounts = {mount.target: mount for mount in spec.mounts}
    for mount in request.mounts:
        if mount.target not in mounts:
            raise _misplaced("mount", mount.target, list(mounts))
        captured = mounts[mount.target]
        mounts[mount.target] = Mount(mount.source, mount.target, captured.read_only)
    return replace(spec, ports=tuple(ports.values()), mounts=tuple(mounts.values()))


def launch_here(launch: dict[str, Any], spec: LaunchSpec) -> dict[str, Any]:
    """The launch object of the record: identity as captured, placement as it is here."""
    ports = [vars(port) for port in spec.ports]
    mounts = [vars(mount) for mount in spec.mounts]
    return {**launch, "ports": ports, "mounts": mounts}


def mount_of(spec: LaunchSpec, path: str) -> Mount | None:
    """The innermost mount of the plan that a path inside the unit lies in."""
    for mount in sorted(spec.mounts, key=lambda mount: -len(mount.target)):
        if path == mount.target or path.startswith(mount.target.rstrip("/") + "/"):
            return mount
    return None


def _misplaced(what: str, name: str, known: list[str]) -> ColdSnapError:
    given = ", ".join(known)
    if what == "port":
        remedy = (
            f"in the plan's units: ports: write name: {known[0]}"
            if len(known) == 1
            else "name the plan's ports as they were captured"
        )
    else:
        remedy = (
            "mount the model and other folders at the targets that they had: model.path and "
            "mounts: of the plan must be the capture's; their sources may differ"
        )
    return ColdSnapError(
        "restore.placement",
        f"the plan gives the unit a {what} {name}, which it did not have when it was captured",
        details=(f"captured {what}s: {given or 'none'}", "nothing was started"),
        remedy=remedy,
    )
