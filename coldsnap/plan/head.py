"""The parts of a plan around its steps: engine, driver, model, store, topology."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar, get_args

from pydantic import ValidationError

from coldsnap.artifact.errors import Source
from coldsnap.plan.document import Document
from coldsnap.plan.expressions import parse_text
from coldsnap.plan.frames import Scope, fill, is_static
from coldsnap.plan.language import DEFAULT_STORE
from coldsnap.plan.model import Driver, Frame
from coldsnap.plan.problems import Problems, hint, near, shown
from coldsnap.plan.references import Reader, Visible, check_value_references
from coldsnap.plan.registry import Registry
from coldsnap.plan.report import Checked, dotted
from coldsnap.plan.static_fields import sources_below
from coldsnap.plan.topology import check_topology, complete
from coldsnap.plan.unit_rules import with_texts
from coldsnap.plan.validation import check_typed
from coldsnap.plan.values import ExpressionError
from coldsnap.sdk.engine import Engine, drivers_of
from coldsnap.sdk.spec import Spec
from coldsnap.sdk.topology import Group, Model, Service, Topology, Unit, Worker

M = TypeVar("M", bound=Spec)

_DRIVERS: tuple[str, ...] = get_args(Driver)
_OPEN_TEXT = (
    ("command", None), ("env", None), ("image",), ("cwd",), ("mounts", None, "source"),
    ("ports", None, "host"), ("ports", None, "port"),
)  # fmt: skip
"""Fields of a unit that a host may fill in; None stands for any index or name."""


@dataclass(frozen=True)
class Head:
    engine: str | None
    driver: Driver
    model: Model | None
    store: str
    topology: Topology | None
    raw_units: Mapping[str, Any] = field(default_factory=dict)
    unit_sources: Mapping[str, Mapping[str, Source]] = field(default_factory=dict)


class HeadReader:
    """Reads one plan's head; what is wrong is added to the problems."""

    def __init__(
        self,
        document: Document,
        data: Mapping[str, Any],
        variables: Mapping[str, Any],
        problems: Problems,
    ) -> None:
        self._document, self._data, self._problems = document, data, problems
        self._frame = Frame()
        self._variables = variables
        self._fixed: dict[str, Any] = {
            "plan": {"name": data["name"], "description": data.get("description", "")}
        }
        self._visible = Visible(tuple(variables), None, {}, has_model=False)

    def read(self, registry: Registry) -> Head:
        engine = self._engine(registry)
        driver = self._driver(registry.engines.get(engine or ""))
        store = self._text("store", DEFAULT_STORE)
        self._fixed["plan"] |= {"engine": engine, "driver": driver, "store": store}
        model = self._model()
        head = Head(engine, driver, model, store, None)
        return self._topology(head)

    def _text(self, name: str, default: str) -> str:
        value = self._static((name,), self._data.get(name, default))
        if not isinstance(value, str):
            if value is not None:
                message = f"{shown(name)} must be text, not {shown(value)}"
                self._problems.add("plan.wrong-type", message, self._document.source((name,)))
            return default
        return value

    def _engine(self, registry: Registry) -> str | None:
        if "engine" not in self._data:
            return None
        name = self._text("engine", "")
        if name and name not in registry.engines:
            self._problems.add(
                "plan.unknown-engine",
                f"unknown engine {shown(name)}",
                self._document.source(("engine",)),
                remedy=hint(name, registry.engines) or "install its pack",
            )
        return name

    def _driver(self, engine: Engine | None) -> Driver:
        name = self._text("driver", "auto")
        for known in _DRIVERS:
            if name == known:
                self._check_supported(name, engine)
                return known  # type: ignore[return-value]
        meant = near(name, _DRIVERS)
        self._problems.add(
            "plan.wrong-value",
            f'"driver" must be one of {", ".join(_DRIVERS)}; not {shown(name)}',
            self._document.source(("driver",)),
            remedy=f'did you mean "{meant}"?' if meant else "",
        )
        return "auto"

    def _check_supported(self, driver: str, engine: Engine | None) -> None:
        """Before anything is started: a driver that the engine knows nothing of."""
        if engine is None or driver == "auto" or driver in drivers_of(engine):
            return
        able = ", ".join(drivers_of(engine))
        self._problems.add(
            "plan.driver-unsupported",
            f"the engine {engine.name} cannot be captured with driver {driver}",
            self._document.source(("driver",)),
            remedy=f"write driver: auto, or one that it supports ({able})",
        )

    def _model(self) -> Model | None:
        if "model" not in self._data:
            return None
        value = self._static(("model",), self._data["model"])
        model = self._typed(Model, value, ("model",)) if value is not None else None
        if model is not None and model.source == "path" and not model.path:
            self._problems.add(
                "plan.missing-field",
                'the model needs "path", the folder on the host that holds it',
                self._document.source(("model",)),
                remedy="add path:, or source: hf for a model of the Hub",
            )
        return model

    def _topology(self, head: Head) -> Head:
        names = ("units", "workers", "groups", "services")
        if head.engine is None and not any(name in self._data for name in names):
            return head
        if head.model is not None:
            values = head.model.model_dump(mode="json")
            self._fixed["model"] = {**values, "path": values["path"] or values["id"]}
        self._visible = Visible(self._visible.variables, None, {}, has_model=head.model is not None)
        known = len(self._problems.found)
        raw = [self._unit(index, unit) for index, unit in enumerate(self._data.get("units", ({},)))]
        if len(self._problems.found) > known:
            return head
        units = [
            self._typed(Unit, _closed(unit), ("units", index)) for index, unit in enumerate(raw)
        ]
        workers = self._list(Worker, "workers")
        groups = self._list(Group, "groups")
        services = self._list(Service, "services")
        if len(self._problems.found) > known:
            return head
        typed = [unit for unit in units if unit is not None]
        topology = complete(typed, workers, groups, services)
        open_ports = frozenset(_open_ports(raw))
        check_topology(topology, self._document.source, self._problems, open_ports)
        return Head(
            head.engine,
            head.driver,
            head.model,
            head.store,
            topology,
            {unit.id: value for unit, value in zip(typed, raw, strict=True)},
            {
                unit.id: sources_below(self._document, ("units", index), raw[index])
                for index, unit in enumerate(typed)
            },
        )

    def _unit(self, index: int, raw: Mapping[str, Any]) -> dict[str, Any]:
        """A unit with variables filled in; what only a host can fill in is left as it is."""
        path = ("units", index)
        filled = {key: self._open(value, (*path, key), (key,)) for key, value in raw.items()}
        return with_texts(filled)

    def _open(self, raw: Any, path: tuple[str | int, ...], inside: tuple[str | int, ...]) -> Any:
        if isinstance(raw, Mapping):
            return {key: self._open(raw[key], (*path, key), (*inside, key)) for key in raw}
        if isinstance(raw, list):
            return [
                self._open(value, (*path, index), (*inside, index))
                for index, value in enumerate(raw)
            ]
        if not isinstance(raw, str):
            return raw
        may_be_open = any(_matches(inside, form) for form in _OPEN_TEXT)
        name = self._document.node((*path[:2], "id"))
        label = f"unit {shown(name.value) if name else 'u0'}"
        reader = Reader(label, static="" if may_be_open else dotted(inside))
        if not self._check(raw, path, reader):
            return raw
        return raw if not is_static(raw, self._frame) else self._fill(raw, path)

    def _static(self, path: tuple[str | int, ...], raw: Any) -> Any:
        reader = Reader("the plan", static=dotted(path))
        return self._fill(raw, path) if self._check(raw, path, reader) else None

    def _check(self, raw: Any, path: tuple[str | int, ...], reader: Reader) -> bool:
        known = len(self._problems.found)
        check_value_references(
            raw,
            self._visible,
            reader,
            self._problems,
            lambda inner: self._document.source((*path, *inner)),
        )
        return len(self._problems.found) == known

    def _fill(self, raw: Any, path: tuple[str | int, ...]) -> Any:
        try:
            return fill(raw, Scope(self._fixed, self._variables).names(self._frame))
        except ExpressionError as error:
            source = self._document.source((*path, *error.path))
            self._problems.add(error.code, error.message, source, remedy=error.remedy)
            return None

    def _list(self, model: type[M], name: str) -> list[M] | None:
        if name not in self._data:
            return None
        value = self._static((name,), self._data[name])
        found = [self._typed(model, each, (name, index)) for index, each in enumerate(value or ())]
        return [each for each in found if each is not None]

    def _typed(self, model: type[M], value: Any, path: tuple[str | int, ...]) -> M | None:
        try:
            return model.model_validate(value)
        except ValidationError as error:
            check_typed(error, Checked(self._document, path), self._problems)
            return None


def _matches(path: tuple[str | int, ...], form: tuple[str | None, ...]) -> bool:
    return len(path) == len(form) and all(
        wanted is None or wanted == part for part, wanted in zip(path, form, strict=True)
    )


def _is_open(value: Any) -> bool:
    return isinstance(value, str) and parse_text(value) is not None


def _closed(raw: Mapping[str, Any]) -> dict[str, Any]:
    """A unit without port numbers that a host fills in: those are placement, not identity."""
    unit = dict(raw)
    if isinstance(unit.get("ports"), list):
        unit["ports"] = [
            {key: value for key, value in port.items() if key != "port" or not _is_open(value)}
            for port in unit["ports"]
        ]
    return unit


def _open_ports(units: list[dict[str, Any]]) -> Iterator[tuple[int, int]]:
    for index, unit in enumerate(units):
        for position, port in enumerate(unit.get("ports", ())):
            if _is_open(port.get("port")):
                yield index, position
