"""What is said of an engine that ended: the cause, not only what was written last."""

from __future__ import annotations

from pathlib import Path

from coldsnap_runtime.engine_log import log_tail

CAUSE = "(EngineCore pid=9) ERROR 11-30 22:14:50 [core.py:1231] ValueError: Free memory is short"
LAST = "(APIServer pid=1) RuntimeError: Engine core initialization failed"


def told(tmp_path: Path, *lines: str) -> tuple[str, ...]:
    log = tmp_path / "engine.log"
    log.write_text("\n".join(lines))
    return log_tail(log, 3)


def test_the_first_error_is_told_before_the_end(tmp_path: Path) -> None:
    found = told(tmp_path, "INFO starts", CAUSE, "  File x", "  File y", "  File z", LAST)
    assert found[0] == f"first error in the log: {CAUSE}"
    assert found[1:4] == ("log:   File y", "log:   File z", f"log: {LAST}")


def test_a_short_log_is_told_once(tmp_path: Path) -> None:
    assert told(tmp_path, "INFO starts", LAST)[:2] == ("log: INFO starts", f"log: {LAST}")


def test_lines_that_only_mention_errors_are_none(tmp_path: Path) -> None:
    lines = ("INFO errors: 0", "Errors are counted", "see ValueError", "a", "b", "c")
    assert told(tmp_path, *lines)[0] == "log: a"
