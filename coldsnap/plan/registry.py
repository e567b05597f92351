"""What is installed: step types, templates and engines of every pack.

Packs are found by entry point groups ``coldsnap.steps`` and ``coldsnap.engines``. One that cannot
be loaded is an error that names it: a plan must never mean less because a pack is broken.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator

from coldsnap.artifact.errors import ColdSnapError
from coldsnap.plan.problems import hint, shown
from coldsnap.plan.schemas import compose_plan_schema, compose_template_schema, inputs_schema
from coldsnap.plan.templates import Template, read_template
from coldsnap.sdk.engine import Engine
from coldsnap.sdk.pack import Pack
from coldsnap.sdk.spec import Spec
from coldsnap.sdk.step import Step

STEPS_GROUP = "coldsnap.steps"
ENGINES_GROUP = "coldsnap.engines"


@dataclass(frozen=True)
class Registry:
    """Step types, templates and engines by name."""

    packs: Mapping[str, Pack]
    steps: Mapping[str, type[Step[Any]]]
    """``core.probe`` -> class."""
    engines: Mapping[str, Engine]
    template_files: Mapping[str, Path] = field(default_factory=dict)
    """``reference.capture`` -> file."""

    @classmethod
    def installed(cls) -> Registry:
        """Everything that entry points announce.

        Raises:
            ColdSnapError: ``pack.load-failed``, ``pack.invalid``.
        """
        packs = [_load(point) for point in _points(STEPS_GROUP)]
        engines = {point.name: _load(point) for point in _points(ENGINES_GROUP)}
        return cls.from_packs(*packs, engines=engines)

    @classmethod
    def from_packs(cls, *packs: Pack, engines: Mapping[str, Any] | None = None) -> Registry:
        """A registry of given packs and engines (instances or classes).

        Raises:
            ColdSnapError: ``pack.invalid``.
        """
        by_name: dict[str, Pack] = {}
        steps: dict[str, type[Step[Any]]] = {}
        files: dict[str, Path] = {}
        for pack in packs:
            if not isinstance(pack, Pack):
                raise _invalid(repr(pack)[:80], "its PACK is not a coldsnap.sdk.Pack")
            if pack.name in by_name:
                raise _invalid(pack.name, "two installed packs have this name")
            by_name[pack.name] = pack
            for name, step in pack.steps.items():
                _check_step(pack, name, step)
                steps[name] = step
            files.update(_template_files(pack))
        for name in files.keys() & steps.keys():
            raise _invalid(name.split(".")[0], f"{name} is both a step type and a template")
        return cls(by_name, steps, _engines(engines or {}), files)

    @cached_property
    def templates(self) -> Mapping[str, Template]:
        """``reference.capture`` -> template, read from its file at first use.

        Raises:
            ColdSnapError: ``plan.*`` with the place in the template's file.
        """
        return {name: self.template(name) for name in self.template_files}

    def template(self, name: str) -> Template:
        """One template, read once.

        Raises:
            ColdSnapError: ``plan.unknown-template``; ``plan.*`` if its file is not valid.
        """
        if name not in self._read:
            if name not in self.template_files:
                raise ColdSnapError(
                    "plan.unknown-template",
                    f"unknown template {shown(name)}",
                    remedy=hint(name, self.template_files),
                )
            validator = self.validator("template")
            self._read[name] = read_template(self.template_files[name], name, validator)
        return self._read[name]

    @cached_property
    def _read(self) -> dict[str, Template]:
        return {}

    def step(self, name: str) -> type[Step[Any]]:
        """The class of a step type.

        Raises:
            ColdSnapError: ``plan.unknown-type``.
        """
        if name not in self.steps:
            raise ColdSnapError(
                "plan.unknown-type",
                f"unknown step type {shown(name)}",
                remedy=hint(name, self.steps, "coldsnap step list"),
            )
        return self.steps[name]

    def engine(self, name: str) -> Engine:
        """An engine.

        Raises:
            ColdSnapError: ``plan.unknown-engine``.
        """
        if name not in self.engines:
            raise ColdSnapError(
                "plan.unknown-engine",
                f"unknown engine {shown(name)}",
                remedy=hint(name, self.engines) or "install its pack",
            )
        return self.engines[name]

    def validator(self, kind: str) -> Draft202012Validator:
        """The validator of ``plan`` or ``template`` documents, or of ``inputs:<template>``.

        Inputs of template uses are checked where they are expanded, so that only the templates
        that a plan uses are read.
        """
        if kind not in self._validators:
            if kind == "plan":
                schema = compose_plan_schema(self, with_inputs=False)
            elif kind == "template":
                schema = compose_template_schema(self, with_inputs=False)
            else:
                schema = inputs_schema(self.template(kind.removeprefix("inputs:")).inputs)
            self._validators[kind] = Draft202012Validator(schema)
        return self._validators[kind]

    @cached_property
    def _validators(self) -> dict[str, Draft202012Validator]:
        return {}


def _points(group: str) -> list[EntryPoint]:
    """Entry points of a group, ordered by name; the same one seen twice on the path counts once."""
    unique = {(point.name, point.value): point for point in entry_points(group=group)}
    return [unique[key] for key in sorted(unique)]


def _load(point: EntryPoint) -> Any:
    try:
        return point.load()
    except Exception as error:
        origin = f" of {point.dist.name} {point.dist.version}" if point.dist else ""
        raise ColdSnapError(
            "pack.load-failed",
            f"the pack {point.name!r} ({point.value}{origin}) cannot be loaded",
            cause=f"{type(error).__name__}: {str(error)[:300]}",
            remedy="repair or uninstall it",
        ) from error


def _engines(given: Mapping[str, Any]) -> dict[str, Engine]:
    engines: dict[str, Engine] = {}
    for name, value in given.items():
        try:
            engine = value() if isinstance(value, type) else value
        except Exception as error:
            raise _invalid(name, f"its engine cannot be made: {error}") from error
        if getattr(engine, "name", None) != name:
            raise _invalid(name, f"its engine calls itself {getattr(engine, 'name', None)!r}")
        engines[name] = engine
    return engines


def _check_step(pack: Pack, name: str, step: type[Step[Any]]) -> None:
    if not (isinstance(step, type) and issubclass(step, Step)):
        raise _invalid(pack.name, f"{name} is not a class derived from Step")
    if not name.startswith(f"{pack.name}."):
        raise _invalid(pack.name, f"the step type {name} does not begin with {pack.name}.")
    if getattr(step, "type", None) != name:
        raise _invalid(pack.name, f"the class of {name} has type {getattr(step, 'type', None)!r}")
    spec = getattr(step, "spec", None)
    if not (isinstance(spec, type) and issubclass(spec, Spec)):
        raise _invalid(pack.name, f"the step type {name} has no spec derived from Spec")


def _template_files(pack: Pack) -> dict[str, Path]:
    folder = pack.root / "templates" if pack.root else None
    found: Iterable[Path] = sorted(folder.glob("*.yaml")) if folder and folder.is_dir() else ()
    return {f"{pack.name}.{path.stem}": path for path in found}


def _invalid(pack: str, reason: str) -> ColdSnapError:
    return ColdSnapError(
        "pack.invalid", f"the pack {pack!r} is not valid: {reason}", remedy="repair or uninstall it"
    )
