"""Parser events -> `Node` tree, with every bound enforced while reading, never after."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from io import StringIO
from typing import Any, NoReturn

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.events import (
    AliasEvent,
    DocumentStartEvent,
    MappingEndEvent,
    MappingStartEvent,
    ScalarEvent,
    SequenceEndEvent,
    SequenceStartEvent,
)
from ruamel.yaml.reader import ReaderError

from coldsnap.artifact.errors import ColdSnapError, Source
from coldsnap.plan.document import MAX_DEPTH, MAX_NODES, Node, source_at
from coldsnap.plan.problems import shown
from coldsnap.plan.scalars import STANDARD_TAGS, TAG, plain, tagged

_LONG_TAG = re.compile(r"(?<![^\s,\[{])!\S{256}")
_QUOTE = 'quote expressions: key: "{{ vars.name }}"'


def compose(text: str, lines: Sequence[str], file: str) -> Node:
    """The root node of the one document in `text`.

    Raises:
        ColdSnapError: see `coldsnap.plan.document.parse_document`.
    """
    composer = _Composer(lines, file)
    composer.check_tags(text)
    try:
        for event in YAML(typ="safe", pure=True).parse(StringIO(text)):
            composer.take(event)
    except MarkedYAMLError as error:
        composer.syntax(error)
    except ReaderError as error:
        composer.bad_character(error, text)
    except (YAMLError, ValueError, TypeError, AttributeError, IndexError, RecursionError) as error:
        # ruamel's scanner raises bare Python errors on some malformed directives and tags.
        composer.fail("plan.syntax", f"this is not YAML: {shown(str(error), 120)}", (0, 0))
    if composer.root is None:
        composer.fail("plan.empty", "the file holds no document", (0, 0))
    return composer.root


@dataclass(slots=True)
class _Open:
    """A collection whose end has not come yet."""

    node: Node
    anchor: str | None
    key: Node | None = None


@dataclass
class _Composer:
    lines: Sequence[str]
    file: str
    root: Node | None = None
    stack: list[_Open] = field(default_factory=list)
    anchors: dict[str, Node] = field(default_factory=dict)
    count: int = 0
    documents: int = 0

    def take(self, event: Any) -> None:
        if isinstance(event, AliasEvent):
            self.put(self.alias(event), event, None)
        elif isinstance(event, ScalarEvent):
            self.put(self.scalar(event), event, event.anchor)
        elif isinstance(event, (MappingStartEvent, SequenceStartEvent)):
            self.open(event)
        elif isinstance(event, (MappingEndEvent, SequenceEndEvent)):
            self.close(event)
        elif isinstance(event, DocumentStartEvent):
            self.start(event)

    def check_tags(self, text: str) -> None:
        """Refuse long tags, which ruamel reads in quadratic time."""
        found = _LONG_TAG.search(text)
        if found:
            before = text[: found.start()]
            place = (before.count("\n"), found.start() - (before.rfind("\n") + 1))
            self.fail("plan.unknown-tag", "this tag is too long", place, "remove it")

    def start(self, event: DocumentStartEvent) -> None:
        self.documents += 1
        place = _start(event)
        if self.documents > 1:
            self.fail("plan.syntax", "a file holds one document; here a second one starts", place)
        if event.version is not None and tuple(event.version) != (1, 2):
            self.fail("plan.syntax", "plans are YAML 1.2; remove the %YAML line", place)

    def open(self, event: MappingStartEvent | SequenceStartEvent) -> None:
        is_map = isinstance(event, MappingStartEvent)
        tag = event.tag
        if tag not in (None, "!", TAG + ("map" if is_map else "seq")):
            self.unknown_tag(event)
        if len(self.stack) >= MAX_DEPTH:
            self.fail("plan.too-deep", f"nested deeper than {MAX_DEPTH} levels", _start(event))
        node = Node({} if is_map else [], *_start(event), *_end(event))
        if self.stack and isinstance(self.stack[-1].node.value, dict) and not self.stack[-1].key:
            self.fail(
                "plan.syntax", "a key must be text, not a list or a map", _start(event), _QUOTE
            )
        self.stack.append(_Open(node, event.anchor))

    def close(self, event: MappingEndEvent | SequenceEndEvent) -> None:
        done = self.stack.pop()
        done.node.end_line, done.node.end_column = _end(event)
        self.put(done.node, event, done.anchor)

    def put(self, node: Node, event: Any, anchor: str | None) -> None:
        """Add a finished node to the collection around it."""
        self.count += 1
        if self.count > MAX_NODES:
            self.too_many(event)
        if anchor is not None:
            self.anchors[anchor] = node
        if not self.stack:
            self.root = node
            return
        around = self.stack[-1]
        if isinstance(around.node.value, list):
            around.node.value.append(node)
        elif around.key is None:
            around.key = self.key(node, around.node)
            return
        else:
            if node.value is None and (node.line, node.column) == (node.end_line, node.end_column):
                _take_place(node, around.key)
            around.node.value[around.key.value] = node
            around.node.keys[around.key.value] = around.key
            around.key = None
        around.node.size += node.size
        if around.node.size > MAX_NODES:
            self.too_many(event)

    def key(self, node: Node, around: Node) -> Node:
        place = (node.line, node.column)
        if isinstance(node.value, (dict, list)):
            self.fail("plan.syntax", "a key must be text, not a list or a map", place, _QUOTE)
        if not isinstance(node.value, str):
            self.fail(
                "plan.syntax", f"the key {shown(node.value)} is not text", place, "put it in quotes"
            )
        if node.value == "<<":
            self.fail(
                "plan.merge-key",
                "merge keys (<<) are not part of YAML 1.2",
                place,
                "write the fields out, or refer to the whole value by *alias",
            )
        if node.value in around.value:
            first = around.keys[node.value].line + 1
            self.fail(
                "plan.duplicate-key",
                f"the key {shown(node.value)} is given twice; first on line {first}",
                place,
                "remove one of them",
                end=(node.end_line, node.end_column),
            )
        return node

    def alias(self, event: AliasEvent) -> Node:
        if event.anchor not in self.anchors:
            self.fail(
                "plan.syntax", f"there is no anchor &{event.anchor} before this", _start(event)
            )
        target = self.anchors[event.anchor]
        # The place of an alias is where it stands, its value that of its anchor.
        return Node(target.value, *_start(event), *_end(event), target.keys, target.size)

    def scalar(self, event: ScalarEvent) -> Node:
        tag = event.tag
        try:
            if tag is None or tag == "!":
                is_plain = tag is None and event.implicit[0]
                value = plain(event.value) if is_plain else event.value
            elif tag in STANDARD_TAGS:
                value = tagged(tag, event.value)
            else:
                self.unknown_tag(event)
        except ValueError as error:
            self.fail("plan.syntax", str(error), _start(event))
        return Node(value, *_start(event), *_end(event))

    def unknown_tag(self, event: Any) -> NoReturn:
        self.fail(
            "plan.unknown-tag",
            f"unknown tag {shown(str(event.tag).replace(TAG, '!!'))}",
            _start(event),
            "plans hold plain values; remove the tag",
        )

    def too_many(self, event: Any) -> NoReturn:
        if self.count > MAX_NODES or not self.anchors:
            self.fail("plan.too-large", f"more than {MAX_NODES:,} values", _start(event))
        self.fail(
            "plan.yaml-bomb",
            f"aliases expand to more than {MAX_NODES:,} values",
            _start(event),
            "write what is meant without nested aliases",
        )

    def syntax(self, error: MarkedYAMLError) -> NoReturn:
        mark = error.problem_mark or error.context_mark
        place = (mark.line, mark.column) if mark else (0, 0)
        text = " ".join(str(error.problem or error.context or "this is not YAML").split())
        remedy = ""
        if place[0] < len(self.lines) and "\t" in self.lines[place[0]][: place[1] + 1]:
            remedy = "indent with spaces, not tabs"
        self.fail("plan.syntax", shown(text, 200)[1:-1], place, remedy)

    def bad_character(self, error: ReaderError, text: str) -> NoReturn:
        character = error.character if isinstance(error.character, int) else ord(error.character)
        position = text.find(chr(character))
        before = text[: max(position, 0)]
        place = (before.count("\n"), len(before) - (before.rfind("\n") + 1))
        self.fail("plan.syntax", f"the character U+{character:04X} is not allowed in YAML", place)

    def fail(
        self,
        code: str,
        message: str,
        place: tuple[int, int],
        remedy: str = "",
        *,
        end: tuple[int, int] | None = None,
    ) -> NoReturn:
        source: Source = source_at(self.file, self.lines, *place, end or (place[0], place[1] + 1))
        raise ColdSnapError(code, message, source=source, remedy=remedy)


def _take_place(node: Node, key: Node) -> None:
    """An empty value stands nowhere: it is shown at its key."""
    node.line, node.column = key.line, key.column
    node.end_line, node.end_column = key.end_line, key.end_column


def _start(event: Any) -> tuple[int, int]:
    return event.start_mark.line, event.start_mark.column


def _end(event: Any) -> tuple[int, int]:
    return event.end_mark.line, event.end_mark.column
