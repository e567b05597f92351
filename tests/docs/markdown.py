"""Fenced blocks and links of the documentation."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
_FENCE = re.compile(r"^(`{3,})\s*([^`]*)$")
_LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")


@dataclass(frozen=True)
class Block:
    document: str
    """Path below the root."""
    line: int
    """Of the fence, from 1."""
    info: tuple[str, ...]
    text: str

    @property
    def language(self) -> str:
        return self.info[0] if self.info else ""

    @property
    def place(self) -> str:
        return f"{self.document}:{self.line}"


def documents() -> list[Path]:
    """Every page of the documentation, the READMEs of step types included."""
    pages = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")]
    return [
        *pages,
        *sorted((ROOT / "docs").glob("*.md")),
        *sorted(ROOT.glob("steps/*/*/README.md")),
    ]


def blocks(document: Path) -> Iterator[Block]:
    lines = document.read_text(encoding="utf-8").splitlines()
    name = document.relative_to(ROOT).as_posix()
    number = 0
    while number < len(lines):
        opening = _FENCE.match(lines[number])
        number += 1
        if opening is None:
            continue
        start = number
        while number < len(lines) and not lines[number].startswith(opening[1]):
            number += 1
        assert number < len(lines), f"{name}:{start}: a fence is never closed"
        text = "\n".join(lines[start:number]) + "\n"
        yield Block(name, start, tuple(opening[2].split()), text)
        number += 1


def all_blocks(language: str) -> list[Block]:
    return [b for page in documents() for b in blocks(page) if b.language == language]


def prose(document: Path) -> str:
    """The text outside of fenced blocks."""
    lines, fence = [], ""
    for line in document.read_text(encoding="utf-8").splitlines():
        found = _FENCE.match(line)
        if fence:
            fence = "" if line.startswith(fence) else fence
        elif found:
            fence = found[1]
        else:
            lines.append(line)
    return "\n".join(lines)


def links(document: Path) -> list[str]:
    return _LINK.findall(prose(document))


def anchors(document: Path) -> set[str]:
    """Names of headings as GitHub makes them."""
    found = set()
    for line in prose(document).splitlines():
        heading = re.match(r"#+ (.*)", line)
        if heading:
            kept = re.sub(r"[^\w\- ]", "", heading[1].replace("`", "").lower())
            found.add(kept.replace(" ", "-"))
    return found
