"""Live rows on a terminal: what runs is redrawn, what has ended scrolls up and stays."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
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
        if key is None:
            return Text.assemble(" ", (text, _STYLES[style]))
        host, step = label(key)
        old = self._widths
        self._widths = (max(old[0], len(host)), max(old[1], len(step)))
        place = f" {host.ljust(self._widths[0])}  {step.ljust(self._widths[1])}  "
        return Text.assemble(place, (text, _STYLES[style]))

    def _draw(self) -> RenderableType:
        with self._lock:
            rows = list(self._tracker.rows.values())
            now = self._tracker.now()
            room = max(1, self._console.height - 4)
            shown = rows[:room]
            table = Table.grid(padding=(0, 2, 0, 0))
            for _ in range(4):
                table.add_column(no_wrap=True)
            for row in shown:
                table.add_row(*self._cells(row, now))
        if len(rows) <= room:
            return table
        return Group(table, Text(f" and {plural(len(rows) - room, 'more step')}", "dim"))

    def _cells(self, row: Row, now: float) -> tuple[Text, Text, Text, Text]:
        host, step = label(row.key)
        width = self._widths
        self._widths = (max(width[0], len(host)), max(width[1], len(step)))
        message = clean(row.message)
        if row.attempt > 1:
            message = f"{message} (try {row.attempt})"
        elapsed = duration(now - row.started) if now - row.started >= 1 else ""
        fraction = row.fraction
        left = row.seconds_left
        amount = row.amount()
        if fraction is None:
            spin = _SPINNER[int(now * 8) % len(_SPINNER)]
            tail = Text.assemble((spin, "cyan"), f" {amount or elapsed}")
        else:
            full = round(fraction * _BAR)
            bar = Text.assemble(("█" * full, "green"), ("░" * (_BAR - full), "dim"))
            countdown = f"  {clock(left)}" if left is not None else f"  {elapsed}"
            tail = Text.assemble(bar, f"  {amount}{countdown}")
        style = "yellow" if row.recovering else ""
        return (
            Text(f" {host.ljust(self._widths[0])}"),
            Text(step.ljust(self._widths[1])),
            Text(message, style, overflow="ellipsis"),
            tail,
        )
