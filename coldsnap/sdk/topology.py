"""Units, workers, groups, services, model: the identity of what is captured.

Rules: every unit has a worker; a worker is in exactly one group whose kind ends in ``:world``.
One unit, one worker and the world group are implied when a plan spells none out.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import (
    Field,
    SerializerFunctionWrapHandler,
    StringConstraints,
    model_serializer,
)

from coldsnap.sdk.spec import Size, Spec

Id = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$")]
Sha256 = Annotated[str, StringConstraints(pattern=r"^sha256:[0-9a-f]{64}$")]
EnvName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]


class Model(Spec):
    """The model to serve, pinned."""

    id: str
    """Name on the Hub, or the name it is served under."""
    revision: str = ""
    """Commit of the Hub revision; empty for a local path."""
    source: Literal["hf", "path"] = "path"
    path: str = ""
    """Folder on the host that holds config and safetensors."""
    digests: dict[str, Sha256] = Field(default_factory=dict)
    """File in that folder -> its digest: what a recovery must find. Without them names, sizes and
    modification times of the captured folder must be the same."""

    @model_serializer(mode="wrap")
    def _without_nothing(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """A model without digests keeps the identity that it had before there were any."""
        fields: dict[str, Any] = handler(self)
        return {name: value for name, value in fields.items() if name != "digests" or value}


class Mount(Spec):
    source: str
    target: str
    read_only: bool = True


class Port(Spec):
    """A port of the unit: `inner` is what the engine binds (identity), the rest is placement."""

    name: str = "http"
    inner: Annotated[int, Field(ge=1, le=65535)] = 8000
    host: str = "127.0.0.1"
    port: Annotated[int, Field(ge=1, le=65535)] | None = None
    """Port on the host; the inner one if absent."""


class Unit(Spec):
    """A launch unit: one process tree or container."""

    id: Id = "u0"
    hosts: str = "all"
    """Host name or group; the unit is placed once on each."""
    devices: tuple[int, ...] = ()
    command: tuple[str, ...] = ()
    """Argv of the engine; empty takes the engine pack's default."""
    env: dict[EnvName, str] = Field(default_factory=dict)
    runtime: Literal["process", "container"] = "process"
    image: str = ""
    """Container image with digest, for runtime: container."""
    mounts: tuple[Mount, ...] = ()
    ports: tuple[Port, ...] = (Port(),)
    network: Literal["private", "host"] = "private"
    shm: Size = 2 << 30
    caches: tuple[str, ...] = ()
    """Folders whose files the process maps (compiler caches); kept with the image."""
    cwd: str = "/"
    preload: tuple[Literal["nccl", "nvml", "mmap"], ...] = ()
    """Libraries of ColdSnap that the engine is started with: `nccl` closes communicators over a
    snapshot, `nvml` answers for the GPUs as they were, `mmap` copies mapped files
    (COLDSNAP_MMAP_COPY in `env`). See docs/unit-runtime.md."""
    memory_guard: bool = False
    """Preload, at the engine's first start, what lets a restore map its image copy-on-write
    (`image_mode: mmap`): for replicas and scale to zero."""


class Worker(Spec):
    id: Id
    unit: Id
    service: Id = "serve"
    process_slot: int = 0
    device_slots: tuple[int, ...] = ()


class Group(Spec):
    id: Id
    kind: str
    service: Id = "serve"
    members: tuple[Id, ...]


class Service(Spec):
    id: Id
    role: str = "serve"
    workers: tuple[Id, ...]


class Topology(Spec):
    units: tuple[Unit, ...]
    workers: tuple[Worker, ...]
    groups: tuple[Group, ...]
    services: tuple[Service, ...]

    def execution(self) -> dict[str, Any]:
        """Workers, groups and services as JSON, the form of requests and descriptors."""
        return self.model_dump(mode="json", include={"workers", "groups", "services"})
