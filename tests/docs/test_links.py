"""Relative links resolve, anchors too; nothing of a machine or a registry is named."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from markdown import ROOT, anchors, documents, links

FOREIGN = re.compile(r"(?<![\w>/.])/(root|work|home)/|pypi\.org|pythonhosted|file:///")
PAGES = documents()


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.relative_to(ROOT).as_posix())
def test_links(page: Path) -> None:
    for link in links(page):
        if re.match(r"[a-z]+:", link):
            assert link.startswith("https://"), link
            continue
        target, _, anchor = link.partition("#")
        path = (page.parent / target).resolve() if target else page
        assert path.exists(), f"{page.name}: {link}"
        assert path.is_relative_to(ROOT), link
        if anchor:
            assert anchor in anchors(path), f"{page.name}: {link} (there are {anchors(path)})"


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.relative_to(ROOT).as_posix())
def test_names_no_machine(page: Path) -> None:
    found = FOREIGN.search(page.read_text(encoding="utf-8"))
    assert found is None, found


def test_every_page_can_be_reached() -> None:
    """From the README, by links."""
    seen: set[Path] = set()
    todo = [ROOT / "README.md"]
    while todo:
        page = todo.pop()
        if page in seen:
            continue
        seen.add(page)
        targets = [link.partition("#")[0] for link in links(page)]
        todo += [(page.parent / t).resolve() for t in targets if t.endswith(".md")]
    lost = set((ROOT / "docs").glob("*.md")) - seen
    assert not lost, lost
