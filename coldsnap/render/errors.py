"""An error as text: code, what, where, why, what to do; with the guilty line of a file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from coldsnap.render.palette import PLAIN, Palette, clean

if TYPE_CHECKING:
    from coldsnap.artifact.errors import ColdSnapError, Source

_MAX_DETAILS = 20
_MAX_LINE = 160
_LEAD = 60
"""Characters shown before what is wrong, in a line that is too long to be shown whole."""


def error_text(error: ColdSnapError, palette: Palette = PLAIN) -> str:
    """The whole story of `error` and of those found with it, without a final newline."""
    parts = ["\n".join(_lines(error, palette))]
    parts.extend(error_text(other, palette) for other in error.more)
    return "\n\n".join(parts)


def error_json(error: ColdSnapError) -> dict[str, Any]:
    """What ``--json`` prints: ``{"error": {...}}``."""
    return {"error": error.to_json()}


def _lines(error: ColdSnapError, palette: Palette) -> list[str]:
    head = palette.paint(f"error[{clean(error.code)}]:", "error")
    source = error.source
    # A place in a file is shown by the snippet; saying it twice helps nobody.
    where = "" if source and error.where.startswith(source.file) else error.where
    place = f"{clean(where)}: " if where else ""
    lines = [f"{head} {place}{palette.paint(clean(error.message), 'strong')}"]
    if source is not None:
        lines.extend(_snippet(source, palette))
    shown = error.details[:_MAX_DETAILS]
    lines.extend(f"  {clean(detail)}" for detail in shown)
    if len(error.details) > len(shown):
        lines.append(f"  ... and {len(error.details) - len(shown)} more lines")
    if error.cause:
        lines.append(f"  {palette.paint('cause:', 'hint')} {clean(error.cause)}")
    if error.remedy:
        label = "hint:" if source is not None else "remedy:"
        lines.append(f"  {palette.paint(label, 'hint')} {clean(error.remedy)}")
    return lines


def _snippet(source: Source, palette: Palette) -> list[str]:
    """File and position, the line above, the guilty line, and what of it is wrong."""
    lines = [f"  {clean(source.file)}:{source.line}:{source.column}"]
    if not source.text.strip():
        return lines
    gutter = len(str(source.line))
    if source.before.strip():
        lines.append(f"    {source.line - 1:>{gutter}} | {_cut(source.before)}")
    marker = palette.paint(">", "error")
    text, column = _around(source.text.rstrip("\r\n"), max(1, source.column))
    lines.append(f"  {marker} {source.line:>{gutter}} | {_cut(text)}")
    width = max(1, min(source.width, len(text) - column + 1, _MAX_LINE - column))
    caret = " " * (column - 1) + palette.paint("^" * width, "error")
    lines.append(f"    {' ' * gutter} | {caret}")
    return lines


def _around(text: str, column: int) -> tuple[str, int]:
    """A long line without so much of its beginning that the column (from 1) is in sight."""
    left_out = column - _LEAD - 1
    if column <= _MAX_LINE // 2 or len(text) <= _MAX_LINE or left_out <= 0:
        return text, column
    return "..." + text[left_out:], _LEAD + 4


def _cut(line: str) -> str:
    text = line.rstrip("\r\n")
    return clean(text if len(text) <= _MAX_LINE else text[: _MAX_LINE - 3] + "...")
