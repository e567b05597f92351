"""What the unit verbs that touch processes are asked, as typed values.

`from_json` of each takes the request of the verb of the same name and refuses what it cannot be.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from coldsnap.artifact.errors import ColdSnapError

if TYPE_CHECKING:
    from pathlib import Path

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
DEFAULT_SHM = 2 << 30
_MAX_SECONDS = 1e6


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
    raw: dict[str, Any] = field(default_factory=dict)
    """The JSON object it was read from, for records."""

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> LaunchSpec:
        reader = _Reader(value, "launch")
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
            raw=value,
        )
        reader.unique_ports(spec.ports)
        return spec


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
        reader = _Reader(value, "unit.launch")
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
class CheckpointRequest:
    unit: str
    run: str
    capture_id: str
    request_sha256: str = ""
    generation: int | None = None

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> CheckpointRequest:
        reader = _Reader(value, "unit.checkpoint")
        return cls(
            unit=reader.name("unit"),
            run=reader.string("run"),
            capture_id=reader.name("capture_id"),
            request_sha256=reader.string("request_sha256"),
            generation=reader.optional_integer("generation"),
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
    verify: str = "record"
    deadline: float = 120.0
    """Seconds for CRIU; a restore that takes longer is killed."""

    @classmethod
    def from_json(
        cls, value: dict[str, Any], image: Path, payloads: tuple[tuple[str, Path], ...] = ()
    ) -> RestoreRequest:
        reader = _Reader(value, "unit.restore")
        request = cls(
            unit=reader.name("unit"),
            run=reader.string("run"),
            image=image,
            artifact=reader.digest("artifact"),
            ports=tuple(_port(item) for item in reader.objects("ports")),
            mounts=tuple(_mount(item) for item in reader.objects("mounts")),
            payloads=payloads,
            verify=reader.choice("verify", ("record", "full")),
        )
        reader.unique_ports(request.ports)
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
        reader = _Reader(value, "unit request")
        return cls(
            unit=reader.name("unit"),
            run=reader.string("run"),
            generation=reader.optional_integer("generation"),
            grace=reader.seconds("grace", 10.0),
        )


def _port(value: dict[str, Any]) -> Port:
    reader = _Reader(value, "port")
    inner = reader.integer("inner", 0, 1, 65535)
    given = value.get("port")
    port = inner if given is None else reader.integer("port", 0, 1, 65535)
    name, host = reader.name("name", "http"), reader.string("host", "127.0.0.1")
    return Port(name, inner, host, port)


def _mount(value: dict[str, Any]) -> Mount:
    reader = _Reader(value, "mount")
    read_only = value.get("read_only", True)
    if not isinstance(read_only, bool):
        raise reader.refused("read_only", "must be true or false")
    return Mount(reader.path("source"), reader.path("target"), read_only)


class _Reader:
    """Fields of one JSON object; every method raises ColdSnapError ``request.invalid``."""

    def __init__(self, value: Any, what: str) -> None:
        self._what = what
        if not isinstance(value, dict):
            raise self.refused("", "must be an object")
        self._value: dict[str, Any] = value

    def refused(self, field_name: str, reason: str) -> ColdSnapError:
        place = f"{self._what}.{field_name}" if field_name else self._what
        return ColdSnapError("request.invalid", f"{place} {reason}")

    def string(self, key: str, default: str = "") -> str:
        value = self._value.get(key)
        if value is None:
            return default
        if not isinstance(value, str) or "\0" in value:
            raise self.refused(key, "must be text")
        return value

    def name(self, key: str, default: str = "") -> str:
        value = self.string(key, default)
        if not _NAME.fullmatch(value):
            raise self.refused(key, f"must be a name of letters, digits and ._-, not {value!r}")
        return value

    def digest(self, key: str) -> str:
        value = self.string(key)
        if not _DIGEST.fullmatch(value):
            raise self.refused(key, f"must be sha256:<64 hex>, not {value!r}")
        return value

    def path(self, key: str, default: str = "") -> str:
        return self.checked_path(key, self.string(key, default))

    def checked_path(self, key: str, value: str) -> str:
        if not value.startswith("/") or ".." in value.split("/"):
            raise self.refused(key, f"must be an absolute path without .., not {value!r}")
        return value

    def choice(self, key: str, allowed: tuple[str, ...]) -> str:
        value = self.string(key, allowed[0])
        if value not in allowed:
            raise self.refused(key, f"must be one of {', '.join(allowed)}, not {value!r}")
        return value

    def integer(self, key: str, default: int, least: int, most: int) -> int:
        value = self._value.get(key, default)
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
            raise self.refused(key, f"must be a whole number from {least} to {most}")
        return value

    def optional_integer(self, key: str) -> int | None:
        return None if self._value.get(key) is None else self.integer(key, 0, 1, 1 << 53)

    def seconds(self, key: str, default: float) -> float:
        value = self._value.get(key, default)
        if (
            isinstance(value, bool)
            or not isinstance(value, (int, float))
            or not 0 <= value < _MAX_SECONDS
        ):
            raise self.refused(key, "must be seconds")
        return float(value)

    def strings(self, key: str, at_least: int = 0) -> tuple[str, ...]:
        value = self._value.get(key) or []
        is_text = isinstance(value, list) and all(
            isinstance(item, str) and "\0" not in item for item in value
        )
        if not is_text or len(value) < at_least:
            raise self.refused(key, f"must be a list of at least {at_least} texts")
        return tuple(value)

    def names(self, key: str) -> tuple[str, ...]:
        values = self.strings(key)
        for value in values:
            if not _NAME.fullmatch(value):
                raise self.refused(key, f"holds {value!r}, which is not a name")
        return values

    def object(self, key: str) -> dict[str, Any]:
        value = self._value.get(key)
        if not isinstance(value, dict):
            raise self.refused(key, "must be an object")
        return value

    def objects(self, key: str) -> list[dict[str, Any]]:
        value = self._value.get(key) or []
        if not isinstance(value, list):
            raise self.refused(key, "must be a list")
        return value

    def environment(self, key: str) -> dict[str, str]:
        value = self._value.get(key) or {}
        if not isinstance(value, dict):
            raise self.refused(key, "must be an object")
        for name, text in value.items():
            if not _ENV_NAME.fullmatch(name) or not isinstance(text, str) or "\0" in text:
                raise self.refused(key, f"has a bad variable {name!r}")
        return value

    def unique_ports(self, ports: tuple[Port, ...]) -> None:
        if len({port.name for port in ports}) != len(ports):
            raise self.refused("ports", "has two ports of one name")
        if len({(port.host, port.port) for port in ports}) != len(ports):
            raise self.refused("ports", "offers two ports at one place")
