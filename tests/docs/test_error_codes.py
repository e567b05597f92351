"""Every error code of the source stands in docs/troubleshooting.md, and no other."""

from __future__ import annotations

import ast
import re
from fnmatch import fnmatchcase

from error_codes import ROOT, codes
from markdown import ROOT as DOCUMENTED_ROOT

PAGE = DOCUMENTED_ROOT / "docs" / "troubleshooting.md"
COMPOSED = {
    "criu.*-failed": ("criu.dump-failed", "criu.restore-failed"),
    "cuda.*-failed": (),
    "pack.*": (),
    "pack.source-*": (),
    "store.*": (),
}
"""Codes that are put together at run time; those found by their parts need no naming here."""
READER = ("coldsnap/plan/composer.py", "coldsnap/plan/document.py")
"""The YAML reader of plans reads inventories too, under ``inventory.``."""
RECEIVED = {"internal.unknown"}
"""Given by ColdSnapError.from_json to an error without a code."""


def raised() -> dict[str, list[str]]:
    found = codes()
    patterns = {code for code in found if "*" in code}
    assert patterns == set(COMPOSED), patterns ^ set(COMPOSED)
    concrete = {code: places for code, places in found.items() if "*" not in code}
    for pattern, named in COMPOSED.items():
        concrete |= dict.fromkeys(named, found[pattern])
    for code, places in list(concrete.items()):
        if code.startswith("plan.") and any(place.startswith(READER) for place in places):
            concrete[code.replace("plan.", "inventory.", 1)] = places
    return concrete | {code: ["coldsnap/artifact/errors.py"] for code in RECEIVED}


def documented() -> list[str]:
    rows = re.findall(r"^\| `([a-z.0-9-]+)` \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    return [row for row in rows if "." in row]


def test_every_code_is_documented() -> None:
    lacking = {code: places[:2] for code, places in raised().items() if code not in documented()}
    assert not lacking, f"not in {PAGE.name}: {lacking}"


def test_no_other_code_is_documented() -> None:
    stale = set(documented()) - set(raised())
    assert not stale, f"nothing raises {sorted(stale)}"


def test_each_once() -> None:
    rows = documented()
    assert len(rows) == len(set(rows)), sorted({row for row in rows if rows.count(row) > 1})


def test_docstrings_name_codes_that_exist() -> None:
    """What a docstring says under ``Raises:`` is raised somewhere."""
    known = set(raised())
    wrong = []
    for folder in ("coldsnap", "steps", "runtime"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if not isinstance(node, (ast.FunctionDef, ast.ClassDef)):
                    continue
                _, _, said = (ast.get_docstring(node) or "").partition("Raises:")
                wrong += [
                    f"{path.relative_to(ROOT)}: {node.name}: {code}"
                    for code in re.findall(r"``([a-z]+\.[a-z*-]+)``", said)
                    if not any(fnmatchcase(name, code) for name in known)
                ]
    assert not wrong, wrong
