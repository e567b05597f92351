"""A unit as a container: the engine of the host makes namespaces and mounts, the rest is as ever.

The container's PID 1 is coldsnap-unit, CRIU is entered from the host beside the engine's tree, so
the container needs no capability beyond those of any other. Only the docker command line is used
(COLDSNAP_DOCKER names another that understands the same words).
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from coldsnap.artifact.errors import ColdSnapError
from coldsnap_runtime.process_table import kill_exact
from coldsnap_runtime.unit_init import INSIDE_ROOT, INSIDE_UNIT, ROOT_PID, UnitMount
from coldsnap_runtime.unit_record import GenerationPaths, ProcessRef

_STATUS = f"{INSIDE_ROOT}/status"
_RUN_SECONDS = 900.0
"""docker run may have to pull the image."""
_SECONDS = 60.0
_START_SECONDS = 20.0


@dataclass(frozen=True)
class ContainerSpec:
    name: str
    image: str
    network: str
    mounts: tuple[UnitMount, ...]
    shm: int
    last_pid: int
    root_pid: int = ROOT_PID
    argv: tuple[str, ...] = ()
    """The root; empty if CRIU will restore it."""
    env: dict[str, str] = field(default_factory=dict)
    labels: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Container:
    identity: str
    init: ProcessRef


def start_container(unit_program: Path, spec: ContainerSpec, paths: GenerationPaths) -> Container:
    """Start the container and, if it has one, its root.

    Raises:
        ColdSnapError: ``container.no-docker``, ``container.start-failed``; nothing is left.
    """
    status = paths.work / "status"
    status.touch(0o600)
    try:
        identity = _docker("run", *_options(spec, status), seconds=_RUN_SECONDS, env=spec.env)
        init = _wait_ready(identity, status)
        _set_last_pid(unit_program, init, spec.last_pid)
        if spec.argv:
            _start_root(init, spec, status)
    except BaseException:
        remove_container(spec.name)
        raise
    return Container(identity, init)


def remove_container(name: str) -> None:
    """End and remove it; that it is gone already is fine."""
    try:
        _docker("rm", "--force", "--volumes", name)
    except ColdSnapError as error:
        if "No such container" not in " ".join(error.details):
            raise


def image_identity(image: str) -> str:
    """Digest of the image's configuration: the same files on every host.

    Raises:
        ColdSnapError: ``container.image-missing``, ``container.no-docker``.
    """
    try:
        return _docker("image", "inspect", "--format", "{{.Id}}", image)
    except ColdSnapError as error:
        if error.code != "container.failed":
            raise
        raise ColdSnapError(
            "container.image-missing",
            f"image {image} is not on this host",
            details=error.details,
            remedy=f"pull it: docker pull {image}",
        ) from None


def changed_files(container: str) -> list[str]:
    """Paths below / that were added or changed in the container's own layer, sorted."""
    lines = _docker("diff", container).splitlines()
    return sorted(line[2:] for line in lines if line[:2] in ("A ", "C "))


def _options(spec: ContainerSpec, status: Path) -> list[str]:
    options = ["--detach", "--name", spec.name, "--network", _network(spec.network)]
    options += ["--ipc", "private", "--shm-size", str(max(spec.shm, 1 << 20)), "--user", "0:0"]
    options += ["--entrypoint", INSIDE_UNIT, "--workdir", "/", "--restart", "no"]
    for name, value in sorted(spec.labels.items()):
        options += ["--label", f"{name}={value}"]
    for name in sorted(spec.env):
        options += ["--env", name]  # the value comes from the environment of docker, not from ps
    for mount in (*spec.mounts, UnitMount("bind", os.fspath(status), _STATUS)):
        options += ["--mount", _mount(mount)]
    contained = ["contain", "--status", _STATUS, "--root-pid", str(spec.root_pid)]
    return [*options, spec.image, *contained, *(("--", *spec.argv) if spec.argv else ())]


def _network(network: str) -> str:
    return "host" if network == "host" else "none"


def _mount(mount: UnitMount) -> str:
    """One --mount value: CSV, so fields with a comma or quote are quoted."""
    fields = ["type=bind", f"source={mount.source}", f"target={mount.target}"]
    if mount.kind == "bind-read-only":
        fields.append("readonly")
    return ",".join(_quoted(word) for word in fields)


def _quoted(word: str) -> str:
    escaped = word.replace('"', '""')
    return f'"{escaped}"' if "," in word or '"' in word else word


def _wait_ready(identity: str, status: Path) -> ProcessRef:
    deadline = time.monotonic() + _START_SECONDS
    while "ready" not in status.read_text():
        state = _inspect(identity)["State"]
        if not state.get("Running") or time.monotonic() > deadline:
            raise _not_started(state.get("Error") or f"its PID 1 is {state.get('Status')}")
        time.sleep(0.02)
    try:
        return ProcessRef.of(int(_inspect(identity)["State"]["Pid"]))
    except ProcessLookupError:
        raise _not_started("its PID 1 ended at once") from None


def _set_last_pid(unit_program: Path, init: ProcessRef, number: int) -> None:
    done = subprocess.run(
        [os.fspath(unit_program), "enter", str(init.pid), "--last-pid", str(number)],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise _not_started(done.stderr.strip().removeprefix("error "))


def _start_root(init: ProcessRef, spec: ContainerSpec, status: Path) -> None:
    kill_exact(init.pid, init.start, signal.SIGUSR1)
    root = Path(f"/proc/{init.pid}/root/proc/{spec.root_pid}")
    deadline = time.monotonic() + _START_SECONDS
    while not root.exists():
        errors = [line[6:] for line in status.read_text().splitlines() if line.startswith("error ")]
        if errors or time.monotonic() > deadline or not init.is_alive:
            raise _not_started(errors[0] if errors else "the root process did not start")
        time.sleep(0.01)


def _inspect(identity: str) -> dict[str, Any]:
    value = json.loads(_docker("inspect", identity))
    return dict(value[0])


def _docker(*words: str, seconds: float = _SECONDS, env: dict[str, str] | None = None) -> str:
    name = os.environ.get("COLDSNAP_DOCKER", "docker")
    command = shutil.which(name)
    if command is None:
        raise _no_docker(f"{name} is not installed")
    try:
        done = subprocess.run(
            [command, *words],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=seconds,
            env={**os.environ, **(env or {})},
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise _failed(words[0], f"no answer within {seconds:g} s") from None
    if done.returncode == 0:
        return done.stdout.strip()
    reason = done.stderr.strip()
    if "Cannot connect to the Docker daemon" in reason or "permission denied" in reason.lower():
        raise _no_docker(reason.splitlines()[0])
    raise _failed(words[0], reason)


def _failed(word: str, reason: str) -> ColdSnapError:
    code = "container.start-failed" if word == "run" else "container.failed"
    lines = [line for line in reason.splitlines() if line and "--help" not in line]
    return ColdSnapError(code, f"docker {word} failed", details=tuple(lines[:10]))


def _no_docker(reason: str) -> ColdSnapError:
    return ColdSnapError(
        "container.no-docker",
        "no container engine answers on this host",
        details=(reason,),
        remedy="start docker, or set runtime: process",
    )


def _not_started(reason: str) -> ColdSnapError:
    return ColdSnapError("container.start-failed", f"the container did not start: {reason}")
