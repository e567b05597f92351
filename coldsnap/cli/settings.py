"""Settings and where each one came from.

A flag wins over ``COLDSNAP_*``, that over the project's ``coldsnap.yaml``, that over the user's
file, that over the default. Plan variables are not settings: the plan package resolves them.
"""

from __future__ import annotations

import difflib
import os
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from coldsnap.artifact.errors import ColdSnapError

if TYPE_CHECKING:
    from collections.abc import Mapping

PROJECT_FILE: Final = "coldsnap.yaml"
LOCAL_INVENTORY: Final = "inventories/local.yaml"
BUILT_IN_INVENTORY: Final = "@local"
_MAX_FILE: Final = 1 << 20
_MAX_NUMBER: Final = 100_000


class Origin(StrEnum):
    """Strongest first."""

    FLAG = "flag"
    ENV = "environment"
    PROJECT = "project file"
    USER = "user file"
    DEFAULT = "default"


@dataclass(frozen=True)
class Setting:
    """One setting that files and the environment may give."""

    name: str
    summary: str
    default: str = ""
    choices: tuple[str, ...] = ()
    is_path: bool = False
    """Relative values are relative to the file that says them."""
    is_number: bool = False

    @property
    def variable(self) -> str:
        return f"COLDSNAP_{self.name.upper()}"


SETTINGS: Final = {
    setting.name: setting
    for setting in (
        Setting("inventory", "file of hosts, or @local", is_path=True),
        Setting("store", "where captures live", "oci-layout:{state_dir}/store"),
        Setting("progress", "auto, tty, plain, json or none", "auto",
                ("auto", "tty", "plain", "json", "none")),
        Setting("color", "auto, always or never", "auto", ("auto", "always", "never")),
        Setting("criu", "CRIU for the runtime pack: a binary or a folder", is_path=True),
        Setting("parallel", "instances that run at once", "64", is_number=True),
    )
}  # fmt: skip


@dataclass(frozen=True)
class Resolved:
    """A value with its origin; `place` is the file or the variable that said it."""

    value: str
    origin: Origin
    place: str = ""


@dataclass(frozen=True)
class Settings:
    project: Path
    values: Mapping[str, Resolved]

    def __getitem__(self, name: str) -> str:
        return self.values[name].value


def find_project(start: Path | None = None) -> Path:
    """The nearest folder upwards that holds coldsnap.yaml or .coldsnap; else `start` itself."""
    here = (start or Path.cwd()).resolve()
    for folder in (here, *here.parents):
        if (folder / PROJECT_FILE).is_file() or (folder / ".coldsnap").is_dir():
            return folder
    return here


def resolve(
    flags: Mapping[str, str | None],
    *,
    project: Path | None = None,
    env: Mapping[str, str] = os.environ,
    user_file: Path | None = None,
) -> Settings:
    """All settings.

    Raises:
        ColdSnapError: ``config.*`` for a file or value that cannot be used.
    """
    given = project or (Path(env["COLDSNAP_PROJECT"]) if env.get("COLDSNAP_PROJECT") else None)
    if given is not None and not given.is_dir():
        raise ColdSnapError("config.no-project", f"there is no folder {given}")
    root = given.resolve() if given else find_project()
    in_project = _read(root / PROJECT_FILE)
    user = user_file or _user_file()
    in_user = _read(user)
    values = {}
    for name, setting in SETTINGS.items():
        found = _first(name, setting, flags, env)
        if found is None and name in in_project:
            found = _from_file(setting, in_project[name], Origin.PROJECT, root / PROJECT_FILE)
        if found is None and name in in_user:
            found = _from_file(setting, in_user[name], Origin.USER, user)
        values[name] = _checked(setting, found or _default(setting, root))
    return Settings(root, values)


def _first(
    name: str, setting: Setting, flags: Mapping[str, str | None], env: Mapping[str, str]
) -> Resolved | None:
    flag = flags.get(name)
    if flag is not None:
        return Resolved(flag, Origin.FLAG, f"--{name}")
    value = env.get(setting.variable)
    return Resolved(value, Origin.ENV, setting.variable) if value else None


def _from_file(setting: Setting, value: Any, origin: Origin, path: Path) -> Resolved:
    if isinstance(value, bool) or not isinstance(value, (str, int)):
        raise ColdSnapError(
            "config.wrong-type", f"{setting.name} in {path} is not text", where=str(path)
        )
    text = str(value)
    if setting.is_path and text and not text.startswith(("@", "/")):
        text = str(path.parent / text)
    return Resolved(text, origin, str(path))


def _default(setting: Setting, root: Path) -> Resolved:
    if setting.name != "inventory":
        return Resolved(setting.default, Origin.DEFAULT)
    local = root / LOCAL_INVENTORY
    return Resolved(str(local) if local.is_file() else BUILT_IN_INVENTORY, Origin.DEFAULT)


def _checked(setting: Setting, found: Resolved) -> Resolved:
    remedy = ""
    if setting.choices and found.value not in setting.choices:
        remedy = f"use one of {', '.join(setting.choices)}"
    if setting.is_number and not (found.value.isdecimal() and 0 < int(found.value) < _MAX_NUMBER):
        remedy = "use a number from 1"
    if remedy:
        raise ColdSnapError(
            "config.bad-value",
            f'{setting.name} cannot be "{found.value}"',
            where=found.place,
            remedy=remedy,
        )
    return found


def _user_file() -> Path:
    from platformdirs import user_config_path

    return user_config_path("coldsnap") / "config.yaml"


def _read(path: Path) -> Mapping[str, Any]:
    """The settings that a file gives; empty if there is no file."""
    try:
        if path.stat().st_size > _MAX_FILE:
            raise ColdSnapError("config.too-large", f"{path} is larger than 1 MiB")
        text = path.read_text(encoding="utf-8")
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except (OSError, UnicodeDecodeError) as error:
        raise ColdSnapError("config.unreadable", f"{path} cannot be read: {error}") from error
    return _parsed(text, path)


def _parsed(text: str, path: Path) -> Mapping[str, Any]:
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    try:
        value = YAML(typ="safe", pure=True).load(text)
    except YAMLError as error:
        first = str(error).strip().splitlines()[0]
        raise ColdSnapError("config.not-yaml", f"{path} is not YAML: {first}") from error
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise ColdSnapError("config.not-a-map", f"{path} must hold names and values")
    for name in value:
        if name not in SETTINGS:
            near = difflib.get_close_matches(str(name), list(SETTINGS), n=1)
            raise ColdSnapError(
                "config.unknown-setting",
                f'unknown setting "{name}" in {path}',
                remedy=f'did you mean "{near[0]}"?' if near else "See: coldsnap config show",
            )
    return value
