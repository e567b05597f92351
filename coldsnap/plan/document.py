"""YAML 1.2 text -> values, with the place of every node.

ruamel.yaml scans and parses; the tree is built here, because what a plan file may do is less than
what YAML may do: one document, keys are text and unique, no tags beyond YAML's own, nesting,
aliases and size are bounded. Comments are kept in the file, not here: see `coldsnap.plan.edit`.
"""

from __future__ import annotations

import errno
import hashlib
import os
import select
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from coldsnap.artifact.errors import ColdSnapError, Source

MAX_BYTES = 1 << 20
"""Largest plan, template or variable file. Plans are read by people: 1 MiB is 20,000 lines."""
MAX_DEPTH = 64
MAX_NODES = 100_000
"""Nodes after aliases are expanded."""

Path_: TypeAlias = Sequence[str | int]
"""Keys and indices from the root to a node."""

_PIPE_SECONDS = 20
"""How long a pipe may stay silent before nobody writes to it."""
_SHOWN = 500
"""Characters of a guilty line that are kept."""


@dataclass(slots=True)
class Node:
    """One YAML node. Lines and columns count from 0 here, from 1 in `Source`."""

    value: Any
    """dict[str, Node], list[Node] or a scalar."""
    line: int
    column: int
    end_line: int
    end_column: int
    keys: dict[str, Node] = field(default_factory=dict)
    """For a map: the key's own node, for its place."""
    size: int = 1
    """Nodes in it, aliases expanded."""

    def plain(self) -> Any:
        """Python dicts, lists and scalars."""
        if isinstance(self.value, dict):
            return {key: node.plain() for key, node in self.value.items()}
        if isinstance(self.value, list):
            return [node.plain() for node in self.value]
        return self.value


@dataclass(frozen=True)
class Document:
    file: str
    text: str
    root: Node
    sha256: str
    """``sha256:...`` of the file's bytes."""
    lines: tuple[str, ...] = field(repr=False)

    @property
    def data(self) -> Any:
        return self.root.plain()

    def node(self, path: Path_) -> Node | None:
        """The node at `path`, or None."""
        *_, last = self._walk(path)
        return last

    def source(self, path: Path_, *, key: bool = False) -> Source:
        """Where `path` is; the nearest place that exists if it does not.

        Args:
            path: keys and indices from the root.
            key: the place of the key (of the last element) instead of its value.
        """
        parent, found = self.root, self.root
        for index, node in enumerate(self._walk(path)):
            if node is None:
                return self.at(found)
            parent, found = found, node
            if key and index == len(path):
                return self.at(parent.keys.get(str(path[-1]), found) if path else found)
        return self.at(found)

    def at(self, node: Node) -> Source:
        return source_at(
            self.file, self.lines, node.line, node.column, (node.end_line, node.end_column)
        )

    def _walk(self, path: Path_) -> Iterator[Node | None]:
        node: Node | None = self.root
        yield node
        for part in path:
            value = node.value if node else None
            if isinstance(value, dict):
                node = value.get(str(part))
            elif isinstance(value, list) and isinstance(part, int) and 0 <= part < len(value):
                node = value[part]
            else:
                node = None
            yield node
            if node is None:
                return


def source_at(
    file: str, lines: Sequence[str], line: int, column: int, end: tuple[int, int] | None = None
) -> Source:
    """A `Source` from a place that counts from 0."""
    text = lines[line] if line < len(lines) else ""
    last = end[1] if end and end[0] == line else len(text.rstrip())
    long = column > _SHOWN
    return Source(
        file=file,
        line=line + 1,
        column=column + 1,
        text="" if long else text[:_SHOWN],
        before=lines[line - 1][:_SHOWN] if 0 < line <= len(lines) else "",
        width=1 if long else max(1, min(last, _SHOWN) - column),
    )


def read_document(path: str | Path) -> Document:
    """Read and parse a file.

    Raises:
        ColdSnapError: ``plan.not-found``, ``plan.unreadable``, and all of `parse_document`.
    """
    name = str(path)
    try:
        content, size = _read(path)
    except FileNotFoundError as error:
        raise ColdSnapError(
            "plan.not-found", f"there is no file {name}", remedy="check the path"
        ) from error
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise ColdSnapError("plan.unreadable", f"{name} cannot be read: {reason}") from error
    return parse_document(content, name, size=max(size, len(content)))


def _read(path: str | Path) -> tuple[bytes, int]:
    """(at most MAX_BYTES + 1 bytes of it, its size as the system tells it). Raises OSError.

    It may be a pipe, as a shell makes one for ``<(command)``, but not one that nobody writes to.
    """
    # Non-blocking: the open of a pipe without a writer must return, not wait.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        found = os.fstat(descriptor)
        if not stat.S_ISFIFO(found.st_mode):
            os.set_blocking(descriptor, True)
            return file.read(MAX_BYTES + 1), found.st_size
        content = b""
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        while len(content) <= MAX_BYTES:
            if not poll.poll(_PIPE_SECONDS * 1000):
                raise OSError(errno.ETIMEDOUT, "nobody writes to this pipe")
            if not (part := os.read(descriptor, MAX_BYTES + 1 - len(content))):
                break
            content += part
        return content, 0


def parse_document(content: bytes, file: str, *, size: int | None = None) -> Document:
    """Parse bytes; `file` is what errors name.

    Raises:
        ColdSnapError: ``plan.too-large``, ``plan.not-utf8``, ``plan.syntax``,
            ``plan.duplicate-key``, ``plan.unknown-tag``, ``plan.yaml-bomb``, ``plan.too-deep``,
            ``plan.empty``.
    """
    from coldsnap.plan.composer import compose  # noqa: PLC0415 - composer imports Node from here

    size = len(content) if size is None else size
    if size > MAX_BYTES:
        raise ColdSnapError(
            "plan.too-large",
            f"{file} has {size:,} bytes; a plan may have {MAX_BYTES:,}",
            remedy="split it, or move data into files on the hosts or a --var-file",
        )
    text = _decode(content, file)
    lines = tuple(text.split("\n"))
    root = compose(text, lines, file)
    digest = "sha256:" + hashlib.sha256(content).hexdigest()
    return Document(file=file, text=text, root=root, sha256=digest, lines=lines)


def _decode(content: bytes, file: str) -> str:
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        good = content[: error.start].decode("utf-8", "replace")
        line = good.count("\n")
        column = len(good) - (good.rfind("\n") + 1)
        raise ColdSnapError(
            "plan.not-utf8",
            f"{file} is not UTF-8: byte 0x{content[error.start]:02x} at offset {error.start}",
            source=Source(file, line + 1, column + 1, good.rsplit("\n", 1)[-1][:_SHOWN]),
            remedy=f"convert it: iconv -f LATIN1 -t UTF-8 {file}",
        ) from error
    # ruamel counts CR, NEL, LS and PS as line ends too; plans with them would show other lines.
    return text.replace("\r\n", "\n").replace("\r", "\n")
