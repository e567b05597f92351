"""Other loaders of safetensors files, each in a process of its own that stays for the whole bench.

Starting an interpreter, torch and a CUDA context is nobody's load, so it is not in the figures.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from coldsnap.artifact.errors import ColdSnapError
from coldsnap_runtime.hydrate.bench_tensors import Sample

PEERS: dict[str, tuple[str, ...]] = {
    "safetensors": ("safetensors",),
    "fastsafetensors": ("fastsafetensors", "fastsafetensors, cuFile"),
    "instanttensor": ("instanttensor", "instanttensor, buffered", "instanttensor, mmap"),
    "runai": ("runai",),
}
"""What a user names -> ways in which it is measured."""
CUDA_ONLY = frozenset({"fastsafetensors, cuFile"})
_STOP_SECONDS = 5.0
_MAX_ANSWER = 1 << 20


class PeerError(Exception):
    """A peer cannot be measured, with its reason in one line."""


@dataclass
class Peer:
    """One loader's process. Any failure ends it and stays its `reason`."""

    name: str
    device: str
    python: str
    deadline: float
    """Seconds for one answer."""
    version: str = ""
    reason: str = ""
    """Why it is not measured, or no longer; empty: it is."""
    _process: subprocess.Popen[bytes] | None = None
    _errors: BinaryIO | None = None
    _rest: bytearray = field(default_factory=bytearray)

    def start(self) -> None:
        """Start it; `ready` waits for it."""
        program = Path(__file__).with_name("bench_peer_child.py")
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed in `stop`
        try:
            self._process = subprocess.Popen(
                [self.python, str(program), self.name, self.device],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._errors,
                env=_environment(),
                start_new_session=True,
            )
        except OSError as error:
            self._give_up(f"{self.python} cannot be started: {error.strerror}")

    def ready(self) -> None:
        """Wait until it can load."""
        if not self.reason:
            with contextlib.suppress(PeerError):
                self.version = str(self._answer().get("version", ""))

    def load(self, path: Path, samples: list[Sample], expected: list[str], size: int) -> float:
        """Load once.

        Returns:
            Bytes per second.

        Raises:
            PeerError: it failed, hangs, or loaded something else than what is in the file.
        """
        if self.reason or self._process is None or self._process.stdin is None:
            raise PeerError(self.reason)
        request = {"load": str(path), "samples": samples}
        try:
            self._process.stdin.write(json.dumps(request).encode() + b"\n")
            self._process.stdin.flush()
        except OSError:
            self._give_up(f"its process ended{self._last_words()}")
            raise PeerError(self.reason) from None
        answer = self._answer()
        if answer.get("bytes") != size:
            self._give_up(f"loaded {answer.get('bytes')} bytes of {size}")
        elif answer.get("samples") != expected:
            self._give_up("what it loaded differs from what is in the file")
        if self.reason:
            raise PeerError(self.reason)
        return size / float(answer["seconds"])

    def stop(self) -> None:
        """End its process."""
        process, self._process = self._process, None
        if process is not None:
            with contextlib.suppress(OSError):
                process.stdin.close()  # type: ignore[union-attr]
            try:
                process.wait(_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            if process.stdout is not None:
                process.stdout.close()
        if self._errors is not None:
            self._errors.close()
            self._errors = None

    def _answer(self) -> dict[str, Any]:
        line = self._line()
        try:
            answer = json.loads(line)
        except ValueError:
            self._give_up(f"answered {line[:80]!r}")
            raise PeerError(self.reason) from None
        if not isinstance(answer, dict) or "error" in answer:
            self._give_up(str(answer.get("error") if isinstance(answer, dict) else answer))
            raise PeerError(self.reason)
        return answer

    def _line(self) -> bytes:
        """The next line of its answers."""
        assert self._process is not None  # noqa: S101 - started
        assert self._process.stdout is not None  # noqa: S101 - a pipe
        descriptor = self._process.stdout.fileno()
        end = time.monotonic() + self.deadline
        while b"\n" not in self._rest:
            left = end - time.monotonic()
            if left <= 0 or not select.select([descriptor], [], [], left)[0]:
                self._give_up(f"no answer in {self.deadline:.0f} s")
                raise PeerError(self.reason)
            piece = os.read(descriptor, 1 << 16)
            if not piece or len(self._rest) > _MAX_ANSWER:
                self._give_up(f"its process ended{self._last_words()}")
                raise PeerError(self.reason)
            self._rest += piece
        line, _, rest = bytes(self._rest).partition(b"\n")
        self._rest = bytearray(rest)
        return line

    def _last_words(self) -> str:
        """The last line that it wrote to stderr."""
        if self._errors is None:
            return ""
        self._errors.seek(max(0, self._errors.seek(0, os.SEEK_END) - 4096))
        lines = self._errors.read().decode("utf-8", "replace").strip().splitlines()
        return f": {lines[-1][:200]}" if lines else ""

    def _give_up(self, reason: str) -> None:
        self.reason = self.reason or reason
        if self._process is not None:
            self._process.kill()


def peers(names: list[str], device: str, python: str | None, deadline: float) -> list[Peer]:
    """The processes that measure what the user named; none is started yet.

    Raises:
        ColdSnapError: ``bench.unknown-peer``.
    """
    found: list[str] = []
    for name in dict.fromkeys(names):
        if name not in PEERS:
            raise ColdSnapError(
                "bench.unknown-peer",
                f"there is no peer {name!r}",
                remedy=f"known are {', '.join(PEERS)}",
            )
        found += [way for way in PEERS[name] if device == "cuda" or way not in CUDA_ONLY]
    return [Peer(way, device, python or sys.executable, deadline) for way in found]


def _environment() -> dict[str, str]:
    """Ours, without what would lead another interpreter to our packages."""
    dropped = {"PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV"}
    kept = {name: value for name, value in os.environ.items() if name not in dropped}
    return {"RUNAI_STREAMER_LOG_LEVEL": "WARNING", "HF_HUB_OFFLINE": "1"} | kept
