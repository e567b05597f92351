"""Rules within a unit and between units: images, mounts, caches, ports, devices."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from coldsnap.artifact.errors import Source
from coldsnap.plan.problems import Problems, shown
from coldsnap.plan.values import as_text
from coldsnap.sdk.topology import Unit

Place: TypeAlias = Callable[[tuple[str | int, ...]], Source | None]

_PINNED = re.compile(r"@sha256:[0-9a-f]{64}$")


def check_units(
    units: Sequence[Unit],
    place: Place,
    problems: Problems,
    open_ports: frozenset[tuple[int, int]] = frozenset(),
) -> None:
    """Add every broken rule to `problems`; expressions that need a host are left alone.

    Args:
        units: the units.
        place: path in the document -> its place.
        problems: takes what is found.
        open_ports: (unit, port) whose host port a host fills in.
    """
    for index, unit in enumerate(units):
        rules = _Unit(unit, ("units", index), place, problems)
        rules.image()
        rules.text()
        rules.caches()
        rules.mounts()
        rules.ports()
        rules.devices()
    _check_between(units, place, problems, open_ports)


def with_texts(unit: Mapping[str, Any]) -> dict[str, Any]:
    """A unit whose command and environment are text throughout.

    Numbers come there from expressions only (``"{{ vars.length }}"``): the schema takes text.
    """
    result = dict(unit)
    if isinstance(unit.get("command"), list):
        result["command"] = [_text(word) for word in unit["command"]]
    if isinstance(unit.get("env"), dict):
        result["env"] = {name: _text(value) for name, value in unit["env"].items()}
    return result


def _text(value: Any) -> Any:
    return as_text(value) if isinstance(value, (bool, int, float)) else value


def _is_open(text: str) -> bool:
    """Whether it holds an expression that only a host can fill in."""
    return "{{" in text


class _Unit:
    def __init__(
        self, unit: Unit, path: tuple[str | int, ...], place: Place, problems: Problems
    ) -> None:
        self._unit, self._path, self._place, self._problems = unit, path, place, problems

    def _add(self, code: str, message: str, *path: str | int, remedy: str = "") -> None:
        source = self._place((*self._path, *path))
        self._problems.add(code, f"unit {shown(self._unit.id)}: {message}", source, remedy=remedy)

    def image(self) -> None:
        unit = self._unit
        if unit.runtime == "process":
            if unit.image:
                remedy = "add runtime: container, or remove the image"
                self._add("plan.image", "a process has no image", "image", remedy=remedy)
        elif not unit.image:
            self._add(
                "plan.image", "a container needs an image", remedy="add image: name@sha256:..."
            )
        elif not _is_open(unit.image) and not _PINNED.search(unit.image):
            self._add(
                "plan.image",
                f"the image {shown(unit.image)} is not pinned by digest",
                "image",
                remedy="write image: name@sha256:...",
            )

    def text(self) -> None:
        for index, word in enumerate(self._unit.command):
            if "\0" in word:
                self._add("plan.wrong-value", "a word of the command holds NUL", "command", index)
        for name, value in self._unit.env.items():
            if "\0" in value:
                self._add("plan.wrong-value", f"{name} holds NUL", "env", name)
        if not _is_open(self._unit.cwd) and not _is_clean(self._unit.cwd):
            self._add("plan.path", _unclean(self._unit.cwd), "cwd")

    def caches(self) -> None:
        seen: list[str] = []
        for index, folder in enumerate(self._unit.caches):
            if not _is_clean(folder) or folder == "/":
                self._add("plan.path", _unclean(folder), "caches", index)
                continue
            for other in seen:
                if _nested(folder, other):
                    self._add(
                        "plan.path",
                        f"the caches {shown(other)} and {shown(folder)} overlap",
                        "caches",
                        index,
                    )
            seen.append(folder)

    def mounts(self) -> None:
        seen: set[str] = set()
        for index, mount in enumerate(self._unit.mounts):
            if not _is_open(mount.source) and not _is_clean(mount.source):
                self._add("plan.mount", _unclean(mount.source), "mounts", index, "source")
            target = mount.target
            if not _is_clean(target) or target == "/":
                self._add("plan.mount", _unclean(target), "mounts", index, "target")
            elif target in seen:
                self._add(
                    "plan.mount", f"two mounts have the target {shown(target)}", "mounts", index
                )
            for folder in self._unit.caches:
                if _nested(target, folder):
                    self._add(
                        "plan.mount",
                        f"the mount {shown(target)} overlaps the cache {shown(folder)}",
                        "mounts",
                        index,
                        remedy="a cache is kept with the image, a mount is not: choose one",
                    )
            seen.add(target)

    def ports(self) -> None:
        names: set[str] = set()
        inner: set[int] = set()
        for index, port in enumerate(self._unit.ports):
            if port.name in names:
                self._add(
                    "plan.port", f"two ports have the name {shown(port.name)}", "ports", index
                )
            if port.inner in inner:
                self._add(
                    "plan.port", f"two ports have the inner port {port.inner}", "ports", index
                )
            names.add(port.name)
            inner.add(port.inner)
            if self._unit.network == "host" and port.port not in (None, port.inner):
                self._add(
                    "plan.port",
                    f"with network: host the port is the inner one, {port.inner}",
                    "ports",
                    index,
                    "port",
                )

    def devices(self) -> None:
        devices = self._unit.devices
        for index, device in enumerate(devices):
            if device < 0 or device in devices[:index]:
                what = "is negative" if device < 0 else "is listed twice"
                self._add("plan.device", f"device {device} {what}", "devices", index)


def _check_between(
    units: Sequence[Unit],
    place: Place,
    problems: Problems,
    open_ports: frozenset[tuple[int, int]],
) -> None:
    """Units on the same hosts share no device and no host port."""
    devices: dict[tuple[str, int], str] = {}
    ports: dict[tuple[str, str, int], str] = {}
    for index, unit in enumerate(units):
        for position, device in enumerate(unit.devices):
            other = devices.setdefault((unit.hosts, device), unit.id)
            if other != unit.id:
                problems.add(
                    "plan.device",
                    f"units {shown(other)} and {shown(unit.id)} share device {device}"
                    f" on {unit.hosts}",
                    place(("units", index, "devices", position)),
                )
        for position, port in enumerate(unit.ports):
            if (index, position) in open_ports:
                continue
            number = port.port or port.inner
            other = ports.setdefault((unit.hosts, port.host, number), unit.id)
            if other != unit.id:
                problems.add(
                    "plan.port",
                    f"units {shown(other)} and {shown(unit.id)} share port"
                    f" {port.host}:{number} on {unit.hosts}",
                    place(("units", index, "ports", position)),
                    remedy="give one of them another ports: [{port: ...}]",
                )


def _is_clean(path: str) -> bool:
    return path.startswith("/") and posixpath.normpath(path) == path and "\0" not in path


def _unclean(path: str) -> str:
    return f"{shown(path)} is not an absolute path without . or .. or a final /"


def _nested(one: str, other: str) -> bool:
    return f"{one}/".startswith(f"{other}/") or f"{other}/".startswith(f"{one}/")
