"""Start a generation's PID 1, in namespaces of our own or in a container."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from coldsnap.artifact.errors import ColdSnapError
from coldsnap_runtime.container import ContainerSpec, start_container
from coldsnap_runtime.criu_kernel import kernel_mounts
from coldsnap_runtime.guard_place import preloaded
from coldsnap_runtime.preload_place import preload_environment
from coldsnap_runtime.unit_init import (
    INSIDE_PACKAGES,
    ROOT_PID,
    InitSpec,
    UnitMount,
    in_own_folders,
    standard_mounts,
    start_init,
)

if TYPE_CHECKING:
    from coldsnap_runtime.installation import Installation
    from coldsnap_runtime.unit_record import GenerationPaths, ProcessRef
    from coldsnap_runtime.unit_requests import LaunchSpec

_PASSED_ON = ("PATH", "HOME", "LANG", "LC_ALL", "TZ", "USER", "LOGNAME")
"""Variables of the caller that the engine gets; everything else comes from the plan."""
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass(frozen=True)
class StartPlan:
    """One start. `argv` empty: no root is started, CRIU will restore it."""

    unit: str
    generation: int
    spec: LaunchSpec
    last_pid: int
    root_pid: int = ROOT_PID
    argv: tuple[str, ...] = ()
    further_mounts: tuple[UnitMount, ...] = ()


@dataclass(frozen=True)
class Started:
    init: ProcessRef
    container: str = ""
    """Its id; empty for a process tree in our own namespaces."""


def start_unit(plan: StartPlan, paths: GenerationPaths, installation: Installation) -> Started:
    """Make the namespaces, and start the root if there is one.

    Raises:
        ColdSnapError: ``unit.start-failed``, ``container.*``; nothing is left.
    """
    standard = standard_mounts(paths, criu=installation.criu, inside=installation.inside)
    asked = tuple(
        UnitMount("bind-read-only" if m.read_only else "bind", m.source, m.target)
        for m in plan.spec.mounts
    )
    mounts = (*standard, *asked, *plan.further_mounts)
    if plan.spec.runtime == "container":
        return _start_container(plan, mounts, paths, installation)
    mounts = (*mounts, *kernel_mounts(paths.folder.parents[2], installation.criu))
    spec = InitSpec(
        network=plan.spec.network,
        mounts=in_own_folders(mounts, plan.spec.shm),
        last_pid=plan.last_pid,
        root_pid=plan.root_pid,
        argv=plan.argv,
        env=engine_environment(plan.spec),
    )
    return Started(start_init(installation.unit, spec, paths))


def container_name(plan: StartPlan, paths: GenerationPaths) -> str:
    """Readable, and never that of another state folder's unit."""
    place = hashlib.sha256(os.fspath(paths.folder.parent.parent).encode()).hexdigest()[:8]
    return f"coldsnap-{plan.unit}-{plan.generation}-{place}"


def engine_environment(spec: LaunchSpec) -> dict[str, str]:
    """What the engine gets; `inside` packages are found through PYTHONPATH.

    In a container only what the plan says: the image brings the rest.
    """
    env: dict[str, str] = {}
    if spec.runtime == "process":
        env = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
        env.setdefault("PATH", _PATH)
        env.setdefault("HOME", "/root")
    env.update(spec.env)
    if spec.inside:
        given = env.get("PYTHONPATH")
        env["PYTHONPATH"] = f"{INSIDE_PACKAGES}:{given}" if given else INSIDE_PACKAGES
    env = preload_environment(env, spec.preload)
    return preloaded(env) if spec.memory_guard else env


def _start_container(
    plan: StartPlan,
    mounts: tuple[UnitMount, ...],
    paths: GenerationPaths,
    installation: Installation,
) -> Started:
    if not plan.spec.image:
        raise ColdSnapError(
            "container.no-image",
            f"unit {plan.unit} is a container without an image",
            remedy="set image: NAME@sha256:... in the plan",
        )
    spec = ContainerSpec(
        name=container_name(plan, paths),
        image=plan.spec.image,
        network=plan.spec.network,
        mounts=mounts,
        shm=plan.spec.shm,
        last_pid=plan.last_pid,
        root_pid=plan.root_pid,
        argv=plan.argv,
        env=engine_environment(plan.spec),
        labels={"coldsnap.unit": plan.unit, "coldsnap.generation": str(plan.generation)},
    )
    container = start_container(installation.unit, spec, paths)
    return Started(container.init, container.identity)


def make_caches(spec: LaunchSpec) -> tuple[UnitMount, ...]:
    """The cache folders of a cold start: the host's own, so that they serve the next one too."""
    for cache in spec.caches:
        Path(cache).mkdir(parents=True, exist_ok=True)
    if spec.runtime == "process":
        return ()  # the unit sees them anyway
    return tuple(UnitMount("bind", cache, cache) for cache in spec.caches)
