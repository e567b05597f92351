"""Live rows on a terminal: what runs is redrawn, what has ended scrolls up and stays."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from coldsnap.render.palette import clean
from coldsnap.render.progress.rows import Row, Tracker, label, sentence
from coldsnap.render.quantities import clock, duration, plural

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self, TextIO

    from rich.console import RenderableType

    from coldsnap.engine.events import RunEvent
    from coldsnap.engine.preview import InstanceKey

_STYLES = {"good": "green", "error": "bold red", "warn": "yellow", "dim": "dim", "": ""}
_BAR = 18
_SPINNER = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"


class LiveProgress:
    """Rows ``gpu-1  stage  capsule  ███████░░░  1.4/1.9 GiB  412 MB/s  0:01``."""

    def __init__(self, stream: TextIO, *, color: bool = True, verbose: bool = False) -> None:
        self._console = Console(
            file=stream,
            force_terminal=True,
            no_color=not color,
            highlight=False,
            markup=False,
            emoji=False,
        )
        self._verbose = verbose
        self._tracker = Tracker()
        self._lock = threading.Lock()
        self._widths = (0, 0)
        self._live = Live(
            console=self._console,
            get_renderable=self._draw,
            refresh_per_second=8,
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
        )

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._live.stop()

    def __call__(self, event: RunEvent) -> None:
        with self._lock:
            self._tracker.take(event)
            said = sentence(event, verbose=self._verbose)
            # A running step has its row; only what ended leaves a line.
            started = event.key is not None and event.key in self._tracker.rows
            if said is None or (started and said[1] == ""):
                return
            line = self._line(event.key, *said)
        self._print(line)

    def note(self, message: str) -> None:
        self._print(Text(" " + clean(message)))

    def _print(self, line: Text) -> None:
        try:
            self._console.print(line, soft_wrap=True)
        except (OSError, ValueError):
            return

    def _line(self, key: InstanceKey | None, text: str, style: str) -> Text:
        place = Text(" ") if key is None else self._place(key)
        return Text.assemble(place, (text, _STYLES[style]))

    def _draw(self) -> RenderableType:
        with self._lock:
            rows = list(self._tracker.rows.values())
            now = self._tracker.now()
            room = max(1, self._console.height - 4)
            shown = rows[:room]
            lines = self._rows(shown, now)
        if len(rows) > room:
            lines.append(Text(f" and {plural(len(rows) - room, 'more step')}", "dim"))
        return Group(*lines)

    def _rows(self, rows: list[Row], now: float) -> list[Text]:
        """Lines that never wrap: what is said gives way to what is counted."""
        cells = [(self._place(row.key), _message(row), _tail(row, now)) for row in rows]
        edges = max((p.cell_len + t.cell_len for p, _, t in cells), default=0)
        longest = max((len(message) for _, message, _ in cells), default=0)
        width = max(0, min(longest, self._console.width - edges - 3))
        lines = []
        for row, (place, said, tail) in zip(rows, cells, strict=True):
            message = Text(said, "yellow" if row.recovering else "")
            message.truncate(width, overflow="ellipsis", pad=True)
            line = Text.assemble(place, message, "  ", tail)
            line.truncate(self._console.width - 1, overflow="ellipsis")
            lines.append(line)
        return lines

    def _place(self, key: InstanceKey) -> Text:
        host, step = label(key)
        old = self._widths
        self._widths = (max(old[0], len(host)), max(old[1], len(step)))
        return Text(f" {host.ljust(self._widths[0])}  {step.ljust(self._widths[1])}  ")


def _message(row: Row) -> str:
    tries = f" (try {row.attempt})" if row.attempt > 1 else ""
    return clean(row.message) + tries


def _tail(row: Row, now: float) -> Text:
    """Bar, amount, rate and time left; or a sign of life and the time so far."""
    elapsed = duration(now - row.started) if now - row.started >= 1 else ""
    fraction, amount = row.fraction, row.amount()
    if fraction is None:
        spin = _SPINNER[int(now * 8) % len(_SPINNER)]
        return Text.assemble((spin, "cyan"), f" {amount or elapsed}")
    full = round(fraction * _BAR)
    bar = Text.assemble(("█" * full, "green"), ("░" * (_BAR - full), "dim"))
    left = row.seconds_left
    countdown = clock(left) if left is not None else elapsed
    return Text.assemble(bar, f"  {amount}  {countdown}")
