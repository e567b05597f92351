"""The steps of one document before expansion: ids, needs, order, cycles."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from coldsnap.artifact.errors import Source
from coldsnap.plan.document import Document
from coldsnap.plan.problems import Problems, hint, shown


@dataclass(frozen=True)
class Item:
    """A step or a template use as written."""

    id: str
    kind: str
    """Step type or template."""
    is_use: bool
    needs: tuple[str, ...]
    """Local ids; those that do not exist are left out (and reported)."""
    raw: Mapping[str, Any]
    path: tuple[str | int, ...]
    """Of the step in its document."""
    source: Source

    @property
    def label(self) -> str:
        return f"step {shown(self.id)}"


def read_items(raw: Sequence[Any], document: Document, problems: Problems) -> list[Item]:
    """The items of a document that passed its schema."""
    names = [_name(value) for value in raw]
    items: dict[str, Item] = {}
    for index, value in enumerate(raw):
        name, path = names[index], ("steps", index)
        place = document.source((*path, "id")) if "id" in value else document.source(path)
        if name in items:
            problems.add(
                "plan.duplicate-id",
                f"two steps have the id {shown(name)}; the first is on line"
                f" {items[name].source.line}",
                place,
                remedy="rename one of them" if "id" in value else "give it an id",
            )
            continue
        items[name] = Item(
            id=name,
            kind=value.get("uses") or value["type"],
            is_use="uses" in value,
            needs=_needs(value, path, names, document, problems),
            raw=value,
            path=path,
            source=place,
        )
        if "uses" in value:
            _check_use(items[name], document, problems)
    return list(items.values())


def _name(raw: Mapping[str, Any]) -> str:
    """The id, by default the verb of the type or template."""
    given = raw.get("id")
    return given if given is not None else str(raw.get("uses") or raw["type"]).rpartition(".")[2]


def _needs(
    raw: Mapping[str, Any],
    path: tuple[str | int, ...],
    names: Sequence[str],
    document: Document,
    problems: Problems,
) -> tuple[str, ...]:
    found: dict[str, None] = {}
    for index, need in enumerate(raw.get("needs", ())):
        if need in names:
            found[need] = None
            continue
        use = need.split(".", 1)[0]
        remedy = (
            f'needs: ["{use}"] waits for all of that template'
            if "." in need and use in names
            else hint(need, names)
        )
        problems.add(
            "plan.missing-need",
            f"step {shown(_name(raw))} needs {shown(need)}, which is no step here",
            document.source((*path, "needs", index)),
            remedy=remedy,
        )
    return tuple(found)


def _check_use(item: Item, document: Document, problems: Problems) -> None:
    for name in ("timeout", "retry", "on_failure"):
        if name in item.raw:
            problems.add(
                "plan.unknown-field",
                f"{item.label} uses a template; {shown(name)} belongs to steps",
                document.source((*item.path, name), key=True),
                remedy="a use takes id, needs, hosts, when and with",
            )


def ancestors(
    items: Sequence[Item], document: Document, problems: Problems
) -> dict[str, frozenset[str]] | None:
    """Local id -> all that it needs, directly or through others; None if there is a cycle."""
    needs = {item.id: item.needs for item in items}
    cycle = find_cycle(needs)
    if cycle:
        first = next(item for item in items if item.id == cycle[0])
        problems.add(
            "plan.cycle",
            f"steps need each other: {' -> '.join((*cycle, cycle[0]))}",
            document.source((*first.path, "needs")),
            remedy="remove one of these needs",
        )
        return None
    known: dict[str, frozenset[str]] = {}
    for name in _needs_first(needs):
        direct = needs[name]
        known[name] = frozenset(direct).union(*(known[need] for need in direct))
    return known


def find_cycle(needs: Mapping[str, Sequence[str]]) -> tuple[str, ...]:
    """Ids of one cycle, each needing the next, the first in document order first; or empty."""
    state: dict[str, int] = {}
    for start in needs:
        trail: list[str] = []
        stack = [(start, iter(needs[start]))] if start not in state else []
        while stack:
            name, rest = stack[-1]
            if state.get(name) is None:
                state[name] = 1
                trail.append(name)
            following = next(rest, None)
            if following is None:
                state[name] = 2
                trail.pop()
                stack.pop()
            elif state.get(following) == 1:
                return _from_first(trail[trail.index(following) :], list(needs))
            elif following not in state:
                stack.append((following, iter(needs[following])))
    return ()


def _from_first(cycle: list[str], order: list[str]) -> tuple[str, ...]:
    start = min(range(len(cycle)), key=lambda index: order.index(cycle[index]))
    return (*cycle[start:], *cycle[:start])


def _needs_first(needs: Mapping[str, Sequence[str]]) -> list[str]:
    """Ids of an acyclic graph, needed ones first, otherwise in document order."""
    done: dict[str, None] = {}
    for start in needs:
        stack = [start]
        while stack:
            name = stack[-1]
            missing = [need for need in needs[name] if need not in done]
            if missing:
                stack.extend(reversed(missing))
            else:
                done.setdefault(name)
                stack.pop()
    return list(done)
