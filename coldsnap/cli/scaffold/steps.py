"""``step new``: the folder of a step type, and its line in the pack's STEPS."""

from __future__ import annotations

import re
from dataclasses import dataclass
from importlib.resources import files
from typing import TYPE_CHECKING, Final

from jinja2 import Environment, StrictUndefined

from coldsnap.artifact.errors import ColdSnapError

if TYPE_CHECKING:
    from pathlib import Path

_NAME: Final = re.compile(r"^([a-z][a-z0-9_]*)[/.]([a-z][a-z0-9_]*)$")
_FILES: Final = {
    "spec.py": "spec.py.j2",
    "step.py": "step.py.j2",
    "README.md": "README.md.j2",
    "cases/absent.yaml": "cases/absent.yaml.j2",
    "cases/there.yaml": "cases/there.yaml.j2",
    "cases/folder-in-the-way.yaml": "cases/folder-in-the-way.yaml.j2",
}
_EMPTY_PACK: Final = '''"""The {pack} pack."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from coldsnap.sdk import Pack, Step

STEPS: dict[str, type[Step[Any]]] = {{
}}

PACK = Pack("{pack}", STEPS, Path(__file__).parent)
'''


@dataclass(frozen=True)
class NewStep:
    """What was written."""

    type: str
    folder: Path
    written: tuple[Path, ...]
    new_pack: bool
    listed: bool
    """Whether the line in STEPS was added; False when the list could not be found."""


def scaffold_step(name: str, shelf: Path) -> NewStep:
    """Write the step type `name` (``core/thaw``) below `shelf`, the folder of packs.

    Raises:
        ColdSnapError: ``scaffold.bad-name``, ``scaffold.exists``, ``scaffold.no-shelf``.
    """
    match = _NAME.match(name)
    if match is None:
        raise ColdSnapError(
            "scaffold.bad-name",
            f'"{name}" is not a name such as core/thaw',
            remedy="write PACK/VERB in small letters, digits and underscores",
        )
    if not shelf.is_dir():
        raise ColdSnapError(
            "scaffold.no-shelf",
            f"there is no folder {shelf}",
            remedy="run this in a project with a steps/ folder, or give --packs DIR",
        )
    pack, verb = match[1], match[2]
    package = f"coldsnap_{pack}"
    folder = shelf / package / verb
    if folder.exists():
        raise ColdSnapError("scaffold.exists", f"{folder} is there already")
    new_pack = _ensure_pack(shelf / package, pack)
    values = {
        "type": f"{pack}.{verb}",
        "verb": verb,
        "package": package,
        "name": "".join(part.capitalize() for part in verb.split("_")),
    }
    written = tuple(_write(folder, path, template, values) for path, template in _FILES.items())
    (folder / "__init__.py").touch()
    listed = _list_step(shelf / package / "__init__.py", values)
    return NewStep(values["type"], folder, written, new_pack, listed)


def _ensure_pack(folder: Path, pack: str) -> bool:
    if (folder / "__init__.py").is_file():
        return False
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "__init__.py").write_text(_EMPTY_PACK.format(pack=pack))
    (folder / "py.typed").touch()
    return True


def _write(folder: Path, path: str, template: str, values: dict[str, str]) -> Path:
    environment = Environment(  # noqa: S701 - Python and YAML are written, not HTML
        undefined=StrictUndefined, keep_trailing_newline=True
    )
    text = files("coldsnap.cli.scaffold").joinpath("step", *template.split("/")).read_text()
    target = folder / path
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(environment.from_string(text).render(values))
    return target


def _list_step(path: Path, values: dict[str, str]) -> bool:
    """Add the import and the line of STEPS, each at its sorted place."""
    lines = path.read_text().splitlines()
    start = next((i for i, line in enumerate(lines) if line.startswith("STEPS")), None)
    if start is None:
        return False
    end = next((i for i in range(start, len(lines)) if lines[i].startswith("}")), None)
    if end is None:
        return False
    entry = f'    "{values["type"]}": {values["name"]},'
    lines[start + 1 : end] = sorted([*lines[start + 1 : end], entry])
    new = f"from {values['package']}.{values['verb']}.step import {values['name']}"
    imports = [i for i, line in enumerate(lines[:start]) if line.startswith(("from ", "import "))]
    at = next((i for i in imports if lines[i].startswith("from coldsnap_") and lines[i] > new), -1)
    lines.insert(at if at >= 0 else imports[-1] + 1, new)
    path.write_text("\n".join(lines) + "\n")
    return True
