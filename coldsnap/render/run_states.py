"""States of runs in words for people; JSON and receipts keep the states themselves."""

from __future__ import annotations

from typing import Final

_WORDS: Final = {"recovered": "failed, put back"}
"""Beside a provider called recovery, the state's own name would read as a success."""


def run_word(state: str) -> str:
    """What a run's state is called in a headline."""
    return _WORDS.get(state, state)
