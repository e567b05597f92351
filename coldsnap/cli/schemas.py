"""``python -m coldsnap.cli.schemas [--check]``: write ``schemas/``, or compare it with the specs.

The schemas are generated for editors and reviewers; nothing reads them at run time. Only packs
that this repository ships are described, so that an installed pack of somebody else does not
show up as a difference.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any, Final

SHIPPED: Final = ("core", "reference", "vllm", "sglang")
_FOLDER: Final = Path(__file__).parents[2] / "schemas"


def generated() -> dict[str, str]:
    """Path below ``schemas/`` -> text."""
    from coldsnap.fleet import inventory_schema
    from coldsnap.plan.registry import Registry
    from coldsnap.plan.schemas import schemas as plan_schemas
    from coldsnap.sdk.schemas import schemas as artifact_schemas

    installed = Registry.installed()
    packs = [pack for name, pack in installed.packs.items() if name in SHIPPED]
    engines = {name: e for name, e in installed.engines.items() if name in SHIPPED}
    documents: dict[str, dict[str, Any]] = {
        **plan_schemas(Registry.from_packs(*packs, engines=engines)),
        **artifact_schemas(),
        "inventory.schema.json": inventory_schema(),
    }
    return {
        name: json.dumps(document, indent=2, ensure_ascii=False) + "\n"
        for name, document in sorted(documents.items())
    }


def present(folder: Path) -> dict[str, str]:
    """The schemas that are in `folder` now."""
    return {
        path.relative_to(folder).as_posix(): path.read_text(encoding="utf-8")
        for path in sorted(folder.rglob("*.schema.json"))
    }


def differences(folder: Path) -> list[str]:
    """A line for each file that is missing, superfluous or not what the specs say."""
    wanted, found = generated(), present(folder)
    return (
        [f"missing: {name}" for name in wanted.keys() - found.keys()]
        + [f"not generated: {name}" for name in found.keys() - wanted.keys()]
        + [f"differs: {n}" for n in wanted.keys() & found.keys() if wanted[n] != found[n]]
    )


def write(folder: Path) -> int:
    """Bring `folder` to what the specs say; the number of files changed."""
    wanted, found = generated(), present(folder)
    for name in found.keys() - wanted.keys():
        (folder / name).unlink()
    changed = {name: text for name, text in wanted.items() if found.get(name) != text}
    for name, text in changed.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return len(changed) + len(found.keys() - wanted.keys())


def main(arguments: list[str] | None = None) -> int:
    """0 if ``schemas/`` is (now) what the specs say, else 1."""
    parser = argparse.ArgumentParser(prog="python -m coldsnap.cli.schemas", description=__doc__)
    parser.add_argument("--check", action="store_true", help="compare, write nothing")
    parser.add_argument("--folder", type=Path, default=_FOLDER, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.check:
        lines = differences(options.folder)
        for line in sorted(lines):
            sys.stderr.write(f"schemas/ is not what the specs say: {line}\n")
        if lines:
            sys.stderr.write("run: make schemas\n")
        return 1 if lines else 0
    sys.stdout.write(f"{write(options.folder)} files changed in {options.folder}\n")
    return 0


if __name__ == "__main__":
    from coldsnap.cli.outcome import exit_code_of

    sys.exit(exit_code_of(main, sys.argv[1:]))
