"""Tensor parallelism: two processes answer as one does."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from reference_server import Served, free_port, start, wait_ready

from coldsnap.artifact.errors import ColdSnapError
from coldsnap_reference_engine import links
from coldsnap_reference_engine.config import read_config
from coldsnap_reference_engine.ranks import Placement, ranks_of

PROMPTS = ["The capital of France is", "A prompt that is longer than one piece. " * 4]


@pytest.fixture
def pair(model: Path, tmp_path: Path) -> Iterator[list[Served]]:
    """Rank 0 and rank 1, tuned."""
    master = f"127.0.0.1:{free_port()}"
    options = ("--tune-seconds", "2", "--tp-size", "2", "--tp-master", master)
    ranks = [
        start(model, tmp_path, *options, "--tp-rank", str(rank), wait=False) for rank in (1, 0)
    ][::-1]
    for rank in ranks:
        wait_ready(rank)
    yield ranks
    for rank in ranks:
        rank.process.kill()
        rank.process.wait()


def test_answers_are_those_of_one_rank(
    pair: list[Served], fresh: Callable[..., Served], tmp_path: Path
) -> None:
    alone = fresh()
    before = [pair[0].complete(prompt, max_tokens=32) for prompt in PROMPTS]
    for found, prompt in zip(before, PROMPTS, strict=True):
        wanted = alone.complete(prompt, max_tokens=32)
        assert found["text"] == wanted["text"]
        marks = found["logprobs"]["token_logprobs"], wanted["logprobs"]["token_logprobs"]
        assert marks[0] == pytest.approx(marks[1], abs=1e-3)
    status, value = pair[1].ask("/v1/completions", {"prompt": "a"})
    assert (status, value["error"]["code"]) == (503, "follower")
    snapshot_round(pair, tmp_path)
    assert [pair[0].complete(prompt, max_tokens=32) for prompt in PROMPTS] == before


def snapshot_round(pair: list[Served], folder: Path) -> None:
    """Quiesce and hydrate both at once; in between no connection is left."""
    folders = [folder / "0", folder / "1"]
    for path in folders:
        path.mkdir()
    both(pair, lambda rank: ("/coldsnap/quiesce", {"dir": str(folders[rank])}))
    sizes = {path.stat().st_size for path in folder.glob("?/payload.pack")}
    assert max(sizes) < 8_000_000, "each rank has its share only"
    for rank in pair:
        assert not established(rank.process.pid)

    def hydrate(rank: int) -> tuple[str, Any]:
        names = {"payload": "payload.pack", "index": "payload.index.json"}
        return "/coldsnap/hydrate", {k: str(folders[rank] / v) for k, v in names.items()}

    both(pair, hydrate)


def both(pair: list[Served], call: Callable[[int], tuple[str, Any]]) -> None:
    with ThreadPoolExecutor(2) as pool:
        answers = list(pool.map(lambda rank: pair[rank].ask(*call(rank), control=True), (0, 1)))
    assert [status for status, _ in answers] == [200, 200], answers


def established(pid: int) -> list[str]:
    """TCP connections of a process, as /proc shows them."""
    inodes = set()
    for link in Path(f"/proc/{pid}/fd").iterdir():
        target = link.readlink().name if link.is_symlink() else ""
        if target.startswith("socket:["):
            inodes.add(target[8:-1])
    lines = Path(f"/proc/{pid}/net/tcp").read_text().splitlines()[1:]
    return [line for line in lines if line.split()[3] == "01" and line.split()[9] in inodes]


def test_lost_rank_is_reported_not_fatal(pair: list[Served]) -> None:
    pair[0].complete()
    pair[1].process.kill()
    pair[1].process.wait()
    status, value = pair[0].ask("/v1/completions", {"prompt": "a", "max_tokens": 4})
    assert status == 500
    assert "closed its connection" in value["error"]["message"] or "rank" in str(value)
    status, value = pair[0].ask("/health")
    assert (status, value["error"]["code"]) == (503, "broken")


def test_absent_and_foreign_ranks(model: Path) -> None:
    identity = {"size": 3, "config": {}}
    listener = links.listen("127.0.0.1", 0)
    address = listener.getsockname()
    with ThreadPoolExecutor(2) as pool:
        accepted = pool.submit(links.accept, listener, identity, 1.0)
        ours = links.connect(address, 1, identity, 5)
        with pytest.raises(ColdSnapError, match=r"ranks\.differ"):
            links.connect(address, 2, {**identity, "config": {"other": 1}}, 5)
        with pytest.raises(ColdSnapError, match="rank 2 did not come"):
            accepted.result()
    ours.close()
    listener.close()
    with pytest.raises(ColdSnapError, match=r"ranks\.absent"):
        links.connect(address, 1, identity, 0.2)


def test_indivisible_model_is_refused(model: Path) -> None:
    with pytest.raises(ColdSnapError, match="cannot be shared by 3 ranks"):
        ranks_of(Placement(0, 3, ("127.0.0.1", free_port())), read_config(model))
