"""Short pieces of a payload pack that tell of every extent, to look for elsewhere."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from coldsnap.artifact.pack_index import Extent

SAMPLE_BYTES: Final = 64
WORD: Final = 8
SHORTEST: Final = 2 * WORD - 1
"""Of these bytes, wherever they lie, one whole aligned word is part."""
_WINDOW: Final = 4096
_EVERY: Final = 16 << 20
"""A large extent is sampled at least once in so many bytes."""
_LEAST, _MOST = 4, 256
"""Samples of one extent."""
_TRIES: Final = 4
_LEAST_DIFFERENT: Final = 4
"""Different bytes in a word that is looked for: what repeats is found everywhere."""


@dataclass(frozen=True)
class Sample:
    extent: str
    offset: int
    """In the extent."""
    data: bytes
    """At most SAMPLE_BYTES."""

    def words(self) -> Iterator[tuple[int, int]]:
        """(word, its offset in the sample), one for each way the sample may be aligned.

        Whatever address a copy has, one of these words lies on a multiple of WORD.
        """
        for shift in range(WORD):
            places = range(shift, len(self.data) - WORD + 1, WORD)
            best = max(places, key=lambda at: len(set(self.data[at : at + WORD])), default=None)
            if best is not None:
                yield int.from_bytes(self.data[best : best + WORD], "little"), best

    @property
    def is_telling(self) -> bool:
        """Whether each of its words is rare enough to be looked for."""
        found = [word.to_bytes(WORD, "little") for word, _ in self.words()]
        return len(found) == WORD and all(len(set(word)) >= _LEAST_DIFFERENT for word in found)


@dataclass(frozen=True)
class Samples:
    found: tuple[Sample, ...]
    extents: int
    """Extents that have at least one sample."""
    constant: tuple[str, ...]
    """Ids of extents that hold nothing to look for: all bytes alike, or too few."""


def samples_of(body: int, extents: Sequence[Extent]) -> Samples:
    """Samples of all extents; `body` is a descriptor of the pack's file.

    Equal content is sampled once.
    """
    found: dict[bytes, Sample] = {}
    constant = []
    sampled = 0
    for extent in extents:
        mine = [sample for sample in _of_extent(body, extent) if sample is not None]
        for sample in mine:
            found.setdefault(sample.data, sample)
        sampled += bool(mine)
        if not mine:
            constant.append(extent.id)
    return Samples(tuple(found.values()), sampled, tuple(constant))


def _of_extent(body: int, extent: Extent) -> Iterator[Sample | None]:
    if extent.length < SHORTEST:
        return
    count = min(_MOST, max(_LEAST, extent.length // _EVERY))
    step = max(1, extent.length // count)
    for number in range(count):
        # Not all at the start of a piece: rows of a tensor may begin alike.
        for attempt in range(_TRIES):
            at = number * step + (step * (2 * attempt + 1)) // (2 * _TRIES + 1)
            sample = _best(body, extent, min(at, max(0, extent.length - SAMPLE_BYTES)))
            if sample is not None:
                yield sample
                break


def _best(body: int, extent: Extent, at: int) -> Sample | None:
    """The most telling sample of a window, None where all is alike."""
    size = min(_WINDOW, extent.length - at)
    data = os.pread(body, size, extent.offset + at)
    starts: Iterable[int] = range(0, max(1, len(data) - SAMPLE_BYTES + 1), SAMPLE_BYTES)
    best = max(starts, key=lambda start: len(set(data[start : start + SAMPLE_BYTES])))
    sample = Sample(extent.id, at + best, data[best : best + SAMPLE_BYTES])
    return sample if sample.is_telling else None


def needles_of(samples: Sequence[Sample]) -> Mapping[int, tuple[tuple[int, int], ...]]:
    """Word -> (number of the sample, offset of the word in it), of all that hold it."""
    found: dict[int, list[tuple[int, int]]] = {}
    for number, sample in enumerate(samples):
        for word, offset in sample.words():
            found.setdefault(word, []).append((number, offset))
    return {word: tuple(places) for word, places in found.items()}
