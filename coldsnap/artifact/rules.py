"""Bounds of a field, and the field types that every contract shares.

A rule stands in ``Annotated[str, Text(...)]``; `coldsnap.artifact.decode` obeys it and the JSON
Schemas show it (the hook below is found by pydantic, which this package never imports).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated, Any

from coldsnap.artifact.jsontext import LONG, MAX_BITS


@dataclass(frozen=True)
class Rule:
    """A bound on a decoded value."""

    def refuse(self, value: Any) -> str:
        """Why `value` is refused; empty if it is fine."""
        raise NotImplementedError

    def schema(self) -> dict[str, Any]:
        """The same bound as JSON Schema keywords."""
        raise NotImplementedError

    def __get_pydantic_json_schema__(self, core_schema: Any, handler: Any) -> dict[str, Any]:
        shown: dict[str, Any] = {**handler(core_schema), **self.schema()}
        return shown


@dataclass(frozen=True)
class Text(Rule):
    """Length in characters and a pattern for the whole text; control characters are refused."""

    pattern: str = ""
    shortest: int = 0
    longest: int = 4096
    what: str = ""
    """Named in the refusal instead of the pattern."""
    control: bool = False
    """Whether control characters (line breaks, NUL) are allowed; NUL never is."""

    def refuse(self, value: Any) -> str:
        if not self.shortest <= len(value) <= self.longest:
            return f"must have {self.shortest} to {self.longest} characters, has {len(value)}"
        if "\0" in value or (not self.control and _CONTROL.search(value)):
            return "must not hold control characters"
        if self.pattern and not re.fullmatch(self.pattern, value):
            shown = value if len(value) <= LONG else value[: LONG - 3] + "..."
            return f"{shown!r} is not {self.what or 'of the form ' + self.pattern}"
        return ""

    def schema(self) -> dict[str, Any]:
        bounds: dict[str, Any] = {"maxLength": self.longest}
        if self.shortest:
            bounds["minLength"] = self.shortest
        if self.pattern:
            bounds["pattern"] = f"^(?:{self.pattern})$"
        return bounds


@dataclass(frozen=True)
class Between(Rule):
    """Inclusive bounds of a number."""

    lowest: float
    highest: float | None = None

    def refuse(self, value: Any) -> str:
        if value < self.lowest:
            return f"must be at least {self.lowest}, is {_short(value)}"
        if self.highest is not None and value > self.highest:
            return f"must be at most {self.highest}, is {_short(value)}"
        return ""

    def schema(self) -> dict[str, Any]:
        if self.highest is None:
            return {"minimum": self.lowest}
        return {"minimum": self.lowest, "maximum": self.highest}


@dataclass(frozen=True)
class Count(Rule):
    """How many items a list or entries an object may have."""

    least: int = 0
    most: int = 1_000_000
    of_object: bool = False

    def refuse(self, value: Any) -> str:
        if self.least <= len(value) <= self.most:
            return ""
        return f"must have {self.least} to {self.most} entries, has {len(value)}"

    def schema(self) -> dict[str, Any]:
        kind = "Properties" if self.of_object else "Items"
        return {f"min{kind}": self.least, f"max{kind}": self.most}


def _short(value: Any) -> str:
    # A hostile integer can have more digits than Python agrees to print.
    if isinstance(value, int) and value.bit_length() > MAX_BITS:
        return f"a number of {value.bit_length()} bits"
    return str(value)


_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_ID = r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}"
_SEGMENT = r"(?!\.{1,2}(?:/|$))[^/\x00]{1,255}"

MAX_BYTES = 1 << 53
"""The largest size that every JSON reader keeps exact."""

Id = Annotated[str, Text(_ID, 1, 128, "an id: letters, digits, '.', '_', '-', at most 128")]
QualifiedName = Annotated[
    str, Text(f"{_ID}:{_ID}", 3, 257, "a qualified name: two ids joined by a colon")
]
Digest = Annotated[
    str, Text(r"sha256:[0-9a-f]{64}", 71, 71, "a digest: sha256: and 64 lower-case hex digits")
]
EnvName = Annotated[str, Text(r"[A-Za-z_][A-Za-z0-9_]*", 1, 256, "an environment variable name")]
RELATIVE_PATH = f"{_SEGMENT}(?:/{_SEGMENT})*"
RelativePath = Annotated[
    str,
    Text(
        RELATIVE_PATH,
        1,
        1024,
        "a relative path without '.', '..', or empty components",
    ),
]
AbsolutePath = Annotated[
    str,
    Text(
        f"/(?:{_SEGMENT}(?:/{_SEGMENT})*)?",
        1,
        4096,
        "an absolute path without '.', '..', or empty components",
    ),
]
OWNER = f"(?:unit|worker|service|group)/{_ID}"
Owner = Annotated[str, Text(OWNER, 1, 160, "an owner: unit/ID, worker/ID, ...")]
Line = Annotated[str, Text()]
"""Free text of one line."""
Prose = Annotated[str, Text(longest=1 << 20, control=True)]
"""Free text with line breaks: prompts, answers."""
Bytes = Annotated[int, Between(0, MAX_BYTES)]
Seconds = Annotated[float, Between(0.0)]
Natural = Annotated[int, Between(0, MAX_BYTES)]
Wide = Annotated[int, Between(0, (1 << 64) - 1)]
"""Inode and device numbers, nanoseconds since 1970: beyond what a JavaScript number keeps."""
