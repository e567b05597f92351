"""Writing values into a plan's file: everything else stays as a person wrote it, to the byte.

Used by commands that fill something in, such as digests and revisions. A scalar's own text is
replaced, or an entry is added to a map that exists; the result is read again and must mean the
same apart from that. Line ends become LF.
"""

from __future__ import annotations

import json
import os
import re
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

from coldsnap.artifact.errors import ColdSnapError
from coldsnap.plan.document import Document, Node, parse_document, read_document
from coldsnap.plan.problems import shown
from coldsnap.plan.report import dotted
from coldsnap.plan.scalars import Scalar, plain

Place: TypeAlias = tuple[str | int, ...]

_SAFE = re.compile(r"[A-Za-z0-9_./][A-Za-z0-9_./@:+-]*(?<!:)")
"""Text that needs no quotes anywhere, in flow style too."""


def edited(document: Document, values: Mapping[Place, Scalar]) -> str:
    """The document's text with values set.

    Args:
        document: as it was read.
        values: path of a scalar -> new value. The map or list around it must exist.

    Raises:
        ColdSnapError: ``plan.no-such-place`` for a path that leads nowhere; ``plan.not-editable``
            where a value cannot be replaced without touching more.
    """
    lines = list(document.lines)
    splices = [_splice(document, path, value) for path, value in values.items()]
    for line, start, end, text in sorted(splices, reverse=True):
        lines[line] = lines[line][:start] + text + lines[line][end:]
    text = "\n".join(lines)
    _check(document, values, text)
    return text


def edit_file(path: str | Path, values: Mapping[Place, Scalar]) -> bool:
    """Set values in a file, which is replaced as a whole; False if nothing changed.

    Raises:
        ColdSnapError: as `edited`, `read_document`; ``plan.unwritable``.
    """
    document = read_document(path)
    text = edited(document, values)
    if text == document.text:
        return False
    try:
        _replace(Path(path), text)
    except OSError as error:
        reason = error.strerror or str(error)
        raise ColdSnapError("plan.unwritable", f"{path} cannot be written: {reason}") from error
    return True


def _splice(document: Document, path: Place, value: Scalar) -> tuple[int, int, int, str]:
    """Line, start and end column, and the text that goes there."""
    node = document.node(path)
    if node is None:
        return _addition(document, path, value)
    if isinstance(node.value, (dict, list)):
        raise _no_place(path, document)
    old = document.lines[node.line][node.column : node.end_column]
    if node.line != node.end_line or old[:1] in ("&", "*", "!", "|", ">"):
        raise _not_editable(document, path, "it is more than a plain value")
    if node.value is None and not old.startswith(("null", "Null", "NULL", "~")):
        raise _not_editable(document, path, "it is empty")
    return node.line, node.column, node.end_column, _text(value, old[:1])


def _addition(document: Document, path: Place, value: Scalar) -> tuple[int, int, int, str]:
    """A new entry of a map that exists."""
    parent = document.node(path[:-1]) if path else None
    key = path[-1] if path else ""
    if parent is None or not isinstance(parent.value, dict) or not isinstance(key, str):
        raise _no_place(path, document)
    entry = f"{_text(key)}: {_text(value)}"
    is_flow = document.lines[parent.line][parent.column] == "{"
    last = _last_line(parent)
    if last is None:
        raise _not_editable(document, path, "there is no simple entry to write it after")
    if is_flow:
        end = last.end_column
        return last.end_line, end, end, f", {entry}"
    column = next(iter(parent.keys.values())).column
    end = len(document.lines[last.end_line])
    return last.end_line, end, end, "\n" + " " * column + entry


def _last_line(parent: Node) -> Node | None:
    """The last entry of a map whose value is on one line."""
    simple = [
        node
        for name, node in parent.value.items()
        if node.line == node.end_line == parent.keys[name].line
        and node.column > parent.keys[name].column
    ]
    return simple[-1] if simple else None


def _text(value: Scalar, quote: str = "") -> str:
    """How a scalar is written, in the quotes that stood there if it is text."""
    if not isinstance(value, str):
        return json.dumps(value)
    if quote == "'" and value.isprintable():
        return "'" + value.replace("'", "''") + "'"
    if quote != '"' and _SAFE.fullmatch(value) and plain(value) == value:
        return value
    return json.dumps(value, ensure_ascii=False)


def _no_place(path: Sequence[str | int], document: Document) -> ColdSnapError:
    return ColdSnapError(
        "plan.no-such-place",
        f"{document.file} has no {shown(dotted(path))} to write to",
        source=document.source(path),
    )


def _not_editable(document: Document, path: Sequence[str | int], reason: str) -> ColdSnapError:
    return ColdSnapError(
        "plan.not-editable",
        f"{shown(dotted(path))} in {document.file} cannot be replaced: {reason}",
        source=document.source(path),
        remedy="make this change by hand",
    )


def _check(document: Document, values: Mapping[Place, Scalar], text: str) -> None:
    expected = document.data
    for path, value in values.items():
        target = expected
        for part in path[:-1]:
            target = target[part]
        target[path[-1]] = value
    if parse_document(text.encode(), document.file).data != expected:
        raise _not_editable(document, next(iter(values), ()), "more would change")


def _replace(path: Path, text: str) -> None:
    """Write by temporary name, fsync, rename, fsync of the folder."""
    folder = path.absolute().parent
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=folder)
    temporary = Path(name)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fchmod(file.fileno(), path.stat().st_mode & 0o7777)
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
