"""Hydration beside other loaders: the same file, the same machine, in turns.

``python3 -m coldsnap_runtime.hydrate.bench_against --device cuda --size 15GiB`` needs nothing but
the standard library here and torch with the peers in `--peer-python`; ``coldsnap payload bench
--against`` shows the same numbers as a table.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from coldsnap.artifact.errors import ColdSnapError
from coldsnap_runtime.hydrate.bench import parse_size
from coldsnap_runtime.hydrate.bench_peers import PEERS, peers
from coldsnap_runtime.hydrate.bench_rounds import Against, AgainstOptions
from coldsnap_runtime.hydrate.bench_tensors import make_tensors
from coldsnap_runtime.hydrate.library import Library, load_library

_LEFT = 0.01
"""Share of the file that may be in the page cache when it should not be."""


def run_against(
    library: Library, options: AgainstOptions, story: Callable[[str], None]
) -> dict[str, Any]:
    """Measure everything once per round, in an order that moves on by one each round.

    The first round is not counted: it touches memory and fills caches for all alike. Rounds with
    an empty page cache are half of the others, one at least.

    Returns:
        A JSON object: ``machine``, ``size``, ``rounds``, ``tensors``, ``rows`` [{name, ceiling,
        warm{rate, best, rounds}, cold{..}, version, reason}], ``cold_cached``: the largest share of
        the file that was in the page cache before a transfer that is told as without.

    Raises:
        ColdSnapError: ``bench.*``, ``hydrate.*``, ``file.*``.
    """
    others = peers(list(options.against), options.device, options.peer_python, options.deadline)
    with ExitStack() as stack:
        for peer in others:
            stack.callback(peer.stop)
            peer.start()
        folder = options.folder
        if folder is None:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="coldsnap-")))
        story(f"making {options.size} bytes of tensors in {folder}")
        file = make_tensors(library, folder, options.size)
        if not options.keep:
            stack.callback(file.remove)
        bench = Against(library, options, file, stack)
        for peer in others:
            peer.ready()
            bench.add(peer)
            if peer.reason:
                story(f"{peer.name} is left out: {peer.reason}")
        for number in range(options.rounds + 1):
            story(
                f"round {number} of {options.rounds}" if number else "a round that is not counted"
            )
            bench.warm_round(number)
            if options.cold and 1 <= number <= max(1, options.rounds // 2):
                bench.cold_round(number)
        return bench.result()


def is_cold(found: dict[str, Any]) -> bool:
    """Whether the page cache was as empty as the rows say."""
    return (found["cold_cached"] or 0.0) <= _LEFT


def main() -> int:
    """The command line of this module; prints one JSON object."""
    parser = argparse.ArgumentParser(prog="coldsnap_runtime.hydrate.bench_against")
    parser.add_argument("--device", choices=("host", "cuda"), default="host")
    parser.add_argument("--size", type=parse_size, default=1 << 30)
    parser.add_argument("--against", default=",".join(PEERS))
    parser.add_argument("--peer-python")
    parser.add_argument("--cuda-library")
    parser.add_argument("--dir", type=Path)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--deadline", type=float, default=120.0)
    parser.add_argument("--budget", type=float, default=0.0)
    for name in ("--keep", "--no-cold"):
        parser.add_argument(name, action="store_true")
    given = parser.parse_args()
    options = AgainstOptions(
        size=given.size, against=tuple(given.against.split(",")), folder=given.dir,
        device=given.device, rounds=max(1, given.rounds), cold=not given.no_cold, keep=given.keep,
        peer_python=given.peer_python, deadline=given.deadline, budget=given.budget,
        cuda_library=given.cuda_library,
    )  # fmt: skip
    try:
        library = load_library()
        if library is None:
            print("libcoldsnap_hydrate.so is not built", file=sys.stderr)
            return 1
        found = run_against(library, options, lambda text: print(text, file=sys.stderr, flush=True))
    except ColdSnapError as error:
        print(error, file=sys.stderr)
        return 1
    print(json.dumps(found, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
