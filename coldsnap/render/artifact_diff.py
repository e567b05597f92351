"""In what two artifacts differ: what was asked for, what it was made of, what it holds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from coldsnap.render.palette import PLAIN, Palette, clean
from coldsnap.render.quantities import local_time, plural, short_digest, size

if TYPE_CHECKING:
    from coldsnap.artifact.oci.read import Artifact

_IDENTITY: Final = ("request_sha256", "snapshot_driver", "launch", "compatibility", "requires")
_SHOWN: Final = 60
_DEEPEST: Final = 12
_LISTED: Final = 12
"""Files and mapped files that are named before it is said how many more there are."""
_RECAPTURED: Final = "same request, captured again: memory of a process is never twice the same"


@dataclass(frozen=True)
class Difference:
    """One thing in which two artifacts differ; a side is empty where it has none."""

    what: str
    first: str
    second: str
    kind: str = "identity"
    """identity, size, mapped, file."""


def differences(first: Artifact, second: Artifact) -> list[Difference]:
    """In what two artifacts differ: identity field by field, sizes, mapped files, files by path."""
    one, two = first.descriptor.to_json(), second.descriptor.to_json()
    found = [
        Difference(f"{name}{path}", *sides)
        for name in _IDENTITY
        for path, *sides in _leaves(one.get(name), two.get(name))
    ]
    old, new = first.descriptor.extensions, second.descriptor.extensions
    for name in sorted(old.sizes.keys() | new.sizes.keys()):
        counts = old.sizes.get(name), new.sizes.get(name)
        if counts[0] != counts[1]:
            shown = [size(count) if count is not None else "" for count in counts]
            found.append(Difference(f"size of {name}", shown[0], shown[1], "size"))
    models = [(side.notes.get("model-files") or {}).get("files") or {} for side in (old, new)]
    found += [
        Difference(f"model file {name}", *(_model_file(side.get(name)) for side in models))
        for name in sorted(models[0].keys() | models[1].keys())
        if models[0].get(name) != models[1].get(name)
    ]
    found += _mapped(first, second)
    found += _answers(old.answers, new.answers)
    return found + _files(first, second)


def _leaves(one: Any, two: Any, path: str = "", depth: int = 0) -> Iterator[tuple[str, str, str]]:
    """(path, first, second) of every value that differs; lists by position."""
    if one == two:
        return
    maps = isinstance(one, Mapping) and isinstance(two, Mapping)
    lists = isinstance(one, (list, tuple)) and isinstance(two, (list, tuple))
    if depth < _DEEPEST and maps:
        for key in sorted(one.keys() | two.keys(), key=str):
            yield from _leaves(one.get(key), two.get(key), f"{path}.{key}", depth + 1)
    elif depth < _DEEPEST and lists and len(one) == len(two):
        for number, (left, right) in enumerate(zip(one, two, strict=True)):
            yield from _leaves(left, right, f"{path}[{number}]", depth + 1)
    else:
        yield path, _short(one), _short(two)


def _model_file(facts: Any) -> str:
    if not isinstance(facts, (list, tuple)) or len(facts) != 2:  # noqa: PLR2004
        return ""
    return f"{size(int(facts[0]))}, written {local_time(int(facts[1]) / 1e9)}"


def _mapped(first: Artifact, second: Artifact) -> list[Difference]:
    """Libraries and other files outside, which a restore needs unchanged."""
    sides = [
        {file.path: file for file in artifact.descriptor.extensions.mapped_files}
        for artifact in (first, second)
    ]
    found = []
    for path in sorted(sides[0].keys() | sides[1].keys()):
        a, b = (side.get(path) for side in sides)
        if a is None or b is None or (a.sha256, a.bytes) != (b.sha256, b.bytes):
            shown = [
                f"{short_digest(f.sha256 or '')} {size(f.bytes)}".strip() if f else ""
                for f in (a, b)
            ]
            found.append(Difference(f"mapped {path}", shown[0], shown[1], "mapped"))
    return found


def _answers(old: Any, new: Any) -> list[Difference]:
    texts = [
        {str(item.get("prompt")): str(item.get("text")) for item in side} for side in (old, new)
    ]
    return [
        Difference(f"answer to {_short(prompt)}", *(_short(side.get(prompt, "")) for side in texts))
        for prompt in sorted(texts[0].keys() | texts[1].keys())
        if texts[0].get(prompt) != texts[1].get(prompt)
    ]


def _files(first: Artifact, second: Artifact) -> list[Difference]:
    left = {layer.path: layer for layer in first.manifest.files()}
    right = {layer.path: layer for layer in second.manifest.files()}
    found = []
    for path in sorted(left.keys() | right.keys()):
        a, b = left.get(path), right.get(path)
        if a is None or b is None or a.digest != b.digest:
            found.append(Difference(path, _file(a), _file(b), "file"))
    return found


def _file(layer: Any) -> str:
    return f"{short_digest(layer.digest)} {size(layer.size)}" if layer is not None else ""


def _short(value: object) -> str:
    text = "" if value is None else str(value)
    return text if len(text) <= _SHOWN else text[: _SHOWN - 3] + "..."


def diff_text(first: Artifact, second: Artifact, palette: Palette = PLAIN) -> str:
    """``~`` differs, ``-`` only in the first, ``+`` only in the second; and what is shared."""
    found = differences(first, second)
    shared = {layer.digest: layer.size for layer in first.manifest.files()}
    common = sum(layer.size for layer in second.manifest.files() if layer.digest in shared)
    last = f"{plural(len(found), 'difference')}, {size(common)} of bytes in common."
    if not found:
        return f"No differences. {last}"
    lines = []
    if not any(item.kind in ("identity", "mapped") for item in found):
        lines += [palette.paint(_RECAPTURED, "dim"), ""]
    for kind in ("identity", "size", "mapped", "file"):
        group = [item for item in found if item.kind == kind]
        shown = group if kind in ("identity", "size") else group[:_LISTED]
        lines += [_line(item, palette) for item in shown]
        if len(group) > len(shown):
            noun = "more mapped file" if kind == "mapped" else "more file"
            lines.append(f"  and {plural(len(group) - len(shown), noun)}")
    return "\n".join([*lines, "", last])


def _line(item: Difference, palette: Palette) -> str:
    symbol, style = ("~", "change") if item.first and item.second else ("+", "create")
    if item.first and not item.second:
        symbol, style = "-", "stop"
    arrow = " -> ".join(clean(side) for side in (item.first, item.second) if side)
    return f"{palette.paint(symbol, style)} {clean(item.what)}  {arrow}"
