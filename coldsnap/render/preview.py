"""A preview as text and as JSON: what would be done on each host, and one last line.

Hosts whose blocks are equal share one block. Steps with nothing to do are hidden unless asked
for; the legend explains only symbols that are used.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from coldsnap.render.palette import PLAIN, Palette, clean
from coldsnap.render.quantities import duration, plural
from coldsnap.sdk.change import Action, Change, Row

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from coldsnap.engine.preview import InstancePreview, Preview

_SYMBOLS: Final = {
    Action.CREATE: "+",
    Action.CHANGE: "~",
    Action.STOP: "-",
    Action.NONE: "=",
    Action.UNKNOWN: "?",
}
_WORDS: Final = {
    Action.CREATE: "create",
    Action.CHANGE: "change",
    Action.STOP: "stop",
    Action.NONE: "unchanged",
    Action.UNKNOWN: "known after apply",
}
_STYLES: Final = {
    Action.CREATE: "create",
    Action.CHANGE: "change",
    Action.STOP: "stop",
    Action.NONE: "dim",
    Action.UNKNOWN: "hint",
}
_RUN_BLOCK: Final = "run"
_MAX_NAMES: Final = 6


@dataclass(frozen=True)
class _Line:
    """One line of a block before it is aligned: step name, symbol, noun, detail."""

    pause: bool
    step: str
    symbol: str
    style: str
    noun: str
    detail: str


def preview_text(preview: Preview, palette: Palette = PLAIN, *, show_all: bool = False) -> str:
    """The whole preview, ending in its fixed last line, without a final newline."""
    blocks = _blocks(preview, show_all=show_all)
    lines: list[_Line] = [line for _, body in blocks for line in body]
    parts: list[str] = []
    legend = _legend(lines, palette)
    if legend:
        parts.append(legend)
    columns = _Columns.of(lines)
    for hosts, body in _merged(blocks):
        shown = "\n".join(columns.write(line, palette) for line in body)
        parts.append(f"  {palette.paint(_heading(hosts), 'strong')}\n{shown}")
    parts.append(summary_line(preview))
    return "\n\n".join(parts)


def summary_line(preview: Preview) -> str:
    """The last line, whose form is fixed because scripts read it.

    ``Plan: 3 to create, 1 to stop, 2 unchanged on 1 host. 1 step pauses serving (about 3 s).``
    """
    counts = _counts(preview)
    hosts = {i.key.host for i in preview.instances if i.key.host} - preview.unreachable.keys()
    where = f" on {plural(len(hosts), 'host')}" if hosts else ""
    failed = len(preview.errors)
    if not preview.is_pending and not failed:
        steps = plural(len({i.key.step for i in preview.instances if i.change}), "step")
        return f"No changes. {steps} checked{where}; everything is as the plan says."
    asked = (Action.CREATE, Action.CHANGE, Action.STOP)
    words = [f"{counts[action]} to {_WORDS[action]}" for action in asked if counts[action]]
    if counts[Action.UNKNOWN]:
        words.append(f"{counts[Action.UNKNOWN]} known after apply")
    words.append(f"{counts[Action.NONE]} unchanged")
    if failed:
        words.append(f"{failed} cannot be done")
    return f"Plan: {', '.join(words)}{where}.{_pauses(preview)}"


def preview_json(preview: Preview) -> dict[str, Any]:
    """The document that ``plan diff --json`` prints."""
    counts = _counts(preview)
    return {
        "format": 1,
        "kind": "coldsnap-preview",
        "plan": {
            "name": preview.plan_name,
            "path": preview.plan_path,
            "sha256": preview.plan_sha256,
        },
        "request_sha256": preview.request_sha256,
        "run": preview.run,
        "pending": preview.is_pending,
        "summary": {action.value: counts[action] for action in Action},
        "pauses_serving": [str(i.key) for i in preview.pausing],
        "instances": [_instance_json(i) for i in preview.instances],
        "unreachable": {name: e.to_json() for name, e in sorted(preview.unreachable.items())},
        "line": summary_line(preview),
    }


def _instance_json(instance: InstancePreview) -> dict[str, Any]:
    change = instance.change
    value: dict[str, Any] = {
        "step": instance.key.step,
        "host": instance.key.host,
        "unit": instance.key.unit,
        "type": instance.type,
        "seen_sha256": instance.seen_sha256,
        "skipped": instance.skipped,
        "error": instance.error.to_json() if instance.error else None,
        "change": None,
    }
    if change is not None:
        value["change"] = {
            "action": change.action.value,
            "summary": change.summary,
            "rows": [
                {"action": row.action.value, "noun": row.noun, "detail": row.detail}
                for row in change.rows
            ],
            "pauses_serving": change.pauses_serving,
            "pause_seconds": change.pause_seconds,
        }
    return value


def _rows(change: Change) -> tuple[Row, ...]:
    """The rows that count. A pending change whose rows are all no-ops counts as itself."""
    if not change.rows:
        return (Row(change.action, change.summary),)
    if change.is_pending and all(row.action is Action.NONE for row in change.rows):
        return (Row(change.action, change.summary), *change.rows)
    return change.rows


def _counts(preview: Preview) -> dict[Action, int]:
    counts = dict.fromkeys(Action, 0)
    for instance in preview.instances:
        if instance.change is None:
            continue
        for row in _rows(instance.change):
            counts[row.action] += 1
    return counts


def _pauses(preview: Preview) -> str:
    pausing = preview.pausing
    if not pausing:
        return ""
    steps = len({i.key.step for i in pausing})
    seconds = [i.change.pause_seconds for i in pausing if i.change and i.change.pause_seconds]
    about = f" (about {duration(max(seconds))})" if seconds else ""
    return f" {plural(steps, 'step')} {'pauses' if steps == 1 else 'pause'} serving{about}."


def _blocks(preview: Preview, *, show_all: bool) -> list[tuple[str, tuple[_Line, ...]]]:
    """Host -> its lines, hosts in the order they appear; empty blocks are left out."""
    by_host: dict[str, list[InstancePreview]] = {}
    for instance in preview.instances:
        by_host.setdefault(instance.key.host, []).append(instance)
    blocks: list[tuple[str, tuple[_Line, ...]]] = []
    for host in preview.unreachable:
        by_host.setdefault(host, [])
    for host, instances in by_host.items():
        if host in preview.unreachable:
            reason = clean(preview.unreachable[host].message)
            blocks.append((host, (_Line(False, "", "x", "error", f"unreachable: {reason}", ""),)))
            continue
        units = {i.key.unit for i in instances if i.key.unit}
        named = [
            line
            for instance in instances
            for line in _instance_lines(instance, show_all=show_all, name_unit=len(units) > 1)
        ]
        if named:
            blocks.append((host or _RUN_BLOCK, tuple(named)))
    return blocks


def _instance_lines(
    instance: InstancePreview, *, show_all: bool, name_unit: bool
) -> Iterator[_Line]:
    key = instance.key
    step = f"{key.step} {key.unit}" if name_unit and key.unit else key.step
    if instance.error is not None:
        yield _Line(False, step, "x", "error", f"error[{instance.error.code}]", "")
        return
    change = instance.change
    if change is None:
        if show_all:
            yield _Line(False, step, "", "dim", f"skipped: {clean(instance.skipped)}", "")
        return
    rows = _rows(change)
    if not change.is_pending and not show_all:
        # Nothing is done, and yet there is something to be said: a model that has changed, say.
        rows = tuple(row for row in rows if row.action is not Action.NONE)
    about = f"about {duration(change.pause_seconds)}" if change.pause_seconds else ""
    pause = change.pauses_serving and change.is_pending
    for number, row in enumerate(rows):
        detail = clean(row.detail)
        if not number and about and pause:
            detail = f"{detail}   {about}".strip()
        yield _Line(
            pause and not number,
            "" if number else step,
            _SYMBOLS[row.action],
            _STYLES[row.action],
            clean(row.noun),
            detail,
        )


@dataclass(frozen=True)
class _Columns:
    """Widths of the step and noun columns, common to all blocks."""

    step: int
    noun: int

    @classmethod
    def of(cls, lines: Iterable[_Line]) -> _Columns:
        every = list(lines)
        # A noun without a detail may be a sentence; it needs no room beside it.
        nouns = [len(line.noun) for line in every if line.detail]
        return cls(
            step=max((len(line.step) for line in every), default=0),
            noun=min(max(nouns, default=0), 32),
        )

    def write(self, line: _Line, palette: Palette) -> str:
        mark = palette.paint("!", "pause") if line.pause else " "
        symbol = palette.paint(line.symbol or " ", line.style)
        noun = line.noun.ljust(self.noun) if line.detail else line.noun
        if line.style in ("dim", "error"):
            noun = palette.paint(noun, line.style)
        detail = f"   {line.detail}" if line.detail else ""
        return f"  {mark} {line.step.ljust(self.step)}   {symbol} {noun}{detail}".rstrip()


def _legend(lines: Iterable[_Line], palette: Palette) -> str:
    used = {line.symbol for line in lines}
    words = [
        palette.paint(f"{_SYMBOLS[action]} {_WORDS[action]}", _STYLES[action])
        for action in (Action.CREATE, Action.CHANGE, Action.STOP, Action.UNKNOWN)
        if _SYMBOLS[action] in used
    ]
    if "=" in used and words:
        words.append(palette.paint("= unchanged", "dim"))
    if any(line.pause for line in lines):
        words.append(palette.paint("! pauses serving", "pause"))
    if "x" in used:
        words.append(palette.paint("x cannot be done", "error"))
    return f"  {'   '.join(words)}" if words else ""


def _merged(
    blocks: Iterable[tuple[str, tuple[_Line, ...]]],
) -> Iterator[tuple[list[str], tuple[_Line, ...]]]:
    """Hosts with equal bodies together, in the order of the first of them."""
    merged: dict[tuple[_Line, ...], list[str]] = {}
    for host, body in blocks:
        merged.setdefault(body, []).append(host)
    for body, hosts in merged.items():
        yield hosts, body


def _heading(hosts: list[str]) -> str:
    shown = ", ".join(clean(host) for host in hosts[:_MAX_NAMES])
    if len(hosts) <= _MAX_NAMES:
        return shown
    return f"{shown} and {len(hosts) - _MAX_NAMES} more"
