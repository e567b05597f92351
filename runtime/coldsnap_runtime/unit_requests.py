"""What the unit verbs that touch processes are asked, as typed values.

`from_json` of each takes the request of the verb of the same name and refuses what it cannot be.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from coldsnap_runtime.request_reader import RequestReader

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

DEFAULT_SHM = 2 << 30
PRELOADS = ("nccl", "nvml", "mmap")
"""Libraries that an engine can be started with."""
MODES = ("auto", "plain", "ext", "mmap")
"""How the pages of a process image come back; see `coldsnap_runtime.restore_rungs`."""


@dataclass(frozen=True)
class Port:
    name: str
    inner: int
    host: str
    port: int
    """On the host."""


@dataclass(frozen=True)
class Mount:
    source: str
    target: str
    read_only: bool = True


@dataclass(frozen=True)
class LaunchSpec:
    """How the engine's process tree is started; the ``launch`` object of the request."""

    argv: tuple[str, ...]
    env: dict[str, str] = field(default_factory=dict)
    cwd: str = "/"
    inside: tuple[str, ...] = ()
    """Packages of the pack's ``inside/`` that the engine shall be able to import."""
    caches: tuple[str, ...] = ()
    """Folders whose files the engine maps; kept with the image, private after a restore."""
    mounts: tuple[Mount, ...] = ()
    network: str = "private"
    ports: tuple[Port, ...] = ()
    shm: int = DEFAULT_SHM
    """Bytes that /dev/shm may hold."""
    runtime: str = "process"
    image: str = ""
    io_uring: str = "deny"
    memory_guard: bool = False
    """Preload the guard that lets a restore map the image (``image_mode: mmap``)."""
    preload: tuple[str, ...] = ()
    """Libraries of `coldsnap_runtime.preload_place` that the engine is started with."""
    template: bool = False
    """The command parks before its engine starts: see `coldsnap_runtime.unit_template`."""
    raw: dict[str, Any] = field(default_factory=dict)
    """The JSON object it was read from, for records."""

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> LaunchSpec:
        reader = RequestReader(value, "launch")
        spec = cls(
            argv=reader.strings("argv", at_least=1),
            env=reader.environment("env"),
            cwd=reader.path("cwd", default="/"),
            inside=reader.names("inside"),
            caches=tuple(reader.checked_path("caches", item) for item in reader.strings("caches")),
            mounts=tuple(_mount(item) for item in reader.objects("mounts")),
            network=reader.choice("network", ("private", "host")),
            ports=tuple(_port(item) for item in reader.objects("ports")),
            shm=reader.integer("shm", DEFAULT_SHM, 0, 1 << 50),
            runtime=reader.choice("runtime", ("process", "container")),
            image=reader.string("image"),
            io_uring=reader.choice("io_uring", ("deny", "allow")),
            memory_guard=reader.boolean("memory_guard"),
            preload=_preloads(reader),
            template=reader.boolean("template"),
            raw=value,
        )
        _require_unique(spec.ports, reader)
        return spec


def _preloads(reader: RequestReader) -> tuple[str, ...]:
    names = reader.strings("preload")
    for name in names:
        if name not in PRELOADS:
            raise reader.refused("preload", f"must be of {', '.join(PRELOADS)}, not {name!r}")
    return tuple(dict.fromkeys(names))


@dataclass(frozen=True)
class LaunchRequest:
    unit: str
    run: str
    engine: str
    launch: LaunchSpec
    launch_sha256: str
    request_sha256: str = ""
    model: Any = None

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> LaunchRequest:
        reader = RequestReader(value, "unit.launch")
        return cls(
            unit=reader.name("unit"),
            run=reader.string("run"),
            engine=reader.string("engine"),
            model=value.get("model"),
            launch=LaunchSpec.from_json(reader.object("launch")),
            launch_sha256=reader.string("launch_sha256"),
            request_sha256=reader.string("request_sha256"),
        )


@dataclass(frozen=True)
class Question:
    """What an engine is asked once it runs again: the ``then`` of a restore, and its answers."""

    then: dict[str, Any]
    answers: tuple[dict[str, Any], ...]


@dataclass(frozen=True)
class CheckpointRequest:
    unit: str
    run: str
    capture_id: str
    request_sha256: str = ""
    generation: int | None = None
    driver: str = "c580"
    """Under whose contract CUDA state is taken out of the devices, where there is any."""
    question: Question | None = None
    """What a canary of the capture is asked, where one may run."""

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> CheckpointRequest:
        reader = RequestReader(value, "unit.checkpoint")
        return cls(
            unit=reader.name("unit"),
            run=reader.string("run"),
            capture_id=reader.name("capture_id"),
            request_sha256=reader.string("request_sha256"),
            generation=reader.optional_integer("generation"),
            # A unit without CUDA state has none to be taken out, under whatever name.
            driver="n610" if reader.string("driver") == "n610" else "c580",
            question=_question(value.get("prove")),
        )


@dataclass(frozen=True)
class RestoreRequest:
    """`image` is a folder laid out as `unit_checkpoint.checkpoint` left it.

    Resolved from the store by the caller, every digest verified. It is only read.
    """

    unit: str
    run: str
    image: Path
    artifact: str
    """Digest of the manifest that `image` comes from."""
    ports: tuple[Port, ...] = ()
    """Placement of the captured ports by name; what is not named keeps its place."""
    mounts: tuple[Mount, ...] = ()
    """New sources of captured mounts by target."""
    payloads: tuple[tuple[str, Path], ...] = ()
    """(file name, file on the host): shown read-only below /run/coldsnap/payload."""
    devices: tuple[int, ...] = ()
    """GPU of this host for each captured one, in order; empty chooses."""
    verify: str = "record"
    """``record`` believes records of earlier hashes; ``digest`` hashes small files, and big page
    files as they are read; ``full`` hashes all before."""
    image_mode: str = "auto"
    """The first rung of the ladder: ``auto`` (ext), ``plain``, ``ext``, ``mmap``."""
    deadline: float = 120.0
    """Seconds for CRIU, all rungs together; a restore that takes longer is killed."""
    huge_pages: bool = True
    """Rung ext: where its rewrite asks for them and the kernel gives them."""
    compare_pages: bool = False
    """Compare every page with the image before anything runs, proven or not."""
    check_pages: Callable[[], object] | None = None
    """Hashes the image's page files; raises what is damaged."""

    @classmethod
    def from_json(
        cls, value: dict[str, Any], image: Path, payloads: tuple[tuple[str, Path], ...] = ()
    ) -> RestoreRequest:
        reader = RequestReader(value, "unit.restore")
        request = cls(
            unit=reader.name("unit"),
            run=reader.string("run"),
            image=image,
            artifact=reader.digest("artifact"),
            ports=tuple(_port(item) for item in reader.objects("ports")),
            mounts=tuple(_mount(item) for item in reader.objects("mounts")),
            payloads=payloads,
            devices=reader.indices("devices"),
            verify=reader.choice("verify", ("record", "digest", "full")),
            image_mode=reader.choice("image_mode", MODES),
        )
        _require_unique(request.ports, reader)
        return request


@dataclass(frozen=True)
class GenerationRequest:
    """For expose and stop."""

    unit: str
    run: str
    generation: int | None = None
    grace: float = 10.0
    """Seconds between TERM and KILL (stop)."""

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> GenerationRequest:
        reader = RequestReader(value, "unit request")
        return cls(
            unit=reader.name("unit"),
            run=reader.string("run"),
            generation=reader.optional_integer("generation"),
            grace=reader.seconds("grace", 10.0),
        )


def _question(value: Any) -> Question | None:
    if value is None:
        return None
    reader = RequestReader(value, "unit.checkpoint.prove")
    return Question(reader.object("then"), tuple(reader.objects("answers")))


def _port(value: dict[str, Any]) -> Port:
    reader = RequestReader(value, "port")
    inner = reader.integer("inner", 0, 1, 65535)
    given = value.get("port")
    port = inner if given is None else reader.integer("port", 0, 1, 65535)
    name, host = reader.name("name", "http"), reader.string("host", "127.0.0.1")
    return Port(name, inner, host, port)


def _mount(value: dict[str, Any]) -> Mount:
    reader = RequestReader(value, "mount")
    read_only = value.get("read_only", True)
    if not isinstance(read_only, bool):
        raise reader.refused("read_only", "must be true or false")
    return Mount(reader.path("source"), reader.path("target"), read_only)


def _require_unique(ports: tuple[Port, ...], reader: RequestReader) -> None:
    if len({port.name for port in ports}) != len(ports):
        raise reader.refused("ports", "has two ports of one name")
    if len({(port.host, port.port) for port in ports}) != len(ports):
        raise reader.refused("ports", "offers two ports at one place")
