"""Putting a file on a host: temporary name, fsync, digest check, rename; skipped if it is there.

Each connector has a transport for bulk bytes of its own. None of them is pyinfra's, which holds
files in memory, copies them twice, and knows neither progress nor digests.
"""

from __future__ import annotations

import os
import secrets
import shlex
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

from coldsnap.artifact.errors import ColdSnapError
from coldsnap.fleet.entries import HostEntry
from coldsnap.sdk.host import JobEvent

Shell: TypeAlias = Callable[[str, float], tuple[int | None, str, str]]
"""(shell text, seconds) -> (exit status, stdout, stderr), as the inventory's user."""

HASH_BYTES_PER_SECOND = 20_000_000
"""The slowest disk that we wait for while a host hashes a file."""
BASE_SECONDS = 60.0
_DIFFERS, _FOLDER, _SHORT = 65, 66, 67
"""Exit statuses of `settle_script`."""


@dataclass
class Upload:
    """One file on its way."""

    entry: HostEntry
    local: Path
    remote: str
    """Absolute path on the host."""
    sha256: str
    """64 hex digits."""
    mode: int
    on_event: Callable[[JobEvent], None] | None = None
    stop: Callable[[], None] | None = None
    """Ends the transport that runs now."""
    cancelled: threading.Event = field(default_factory=threading.Event)
    size: int = 0
    temporary: str = ""

    def __post_init__(self) -> None:
        if not self.remote.startswith("/") or len(self.sha256) != 64:  # noqa: PLR2004
            raise ColdSnapError(
                "internal.upload", f"bad upload: {self.remote!r} with digest {self.sha256!r}"
            )
        try:
            self.size = self.local.stat().st_size
        except OSError as error:
            raise ColdSnapError(
                "upload.unreadable", f"{self.local} cannot be read: {error.strerror}"
            ) from error
        folder, name = os.path.split(self.remote)
        self.temporary = f"{folder}/.{name[:100]}.{secrets.token_hex(6)}.coldsnap"

    @property
    def where(self) -> str:
        return self.entry.name

    @property
    def hash_seconds(self) -> float:
        return BASE_SECONDS + self.size / HASH_BYTES_PER_SECOND

    def cancel(self) -> None:
        self.cancelled.set()
        if self.stop is not None:
            self.stop()

    def check(self) -> None:
        """Stop here if it was cancelled: ColdSnapError ``run.cancelled``."""
        if self.cancelled.is_set():
            raise ColdSnapError(
                "run.cancelled", f"the upload of {self.remote} was cancelled", where=self.where
            )

    def progress(self, done: int) -> None:
        """Tell how many bytes are there.

        Raises:
            ColdSnapError: ``run.cancelled``.
        """
        self.check()
        if self.on_event is not None:
            name = Path(self.remote).name
            self.on_event(JobEvent("progress", name, done, self.size, "B"))

    def failed(self, reason: str, *details: str) -> ColdSnapError:
        return ColdSnapError(
            "upload.failed",
            f"{self.remote} could not be put on {self.where}: {reason}",
            where=self.where,
            details=tuple(line[:500] for line in details if line)[-5:],
            remedy="check the space and the permissions of that folder",
        )

    def corrupted(self, found: str) -> ColdSnapError:
        return ColdSnapError(
            "upload.digest-mismatch",
            f"{self.remote} did not arrive as it should",
            where=self.where,
            details=(f"expected sha256:{self.sha256}", f"arrived  sha256:{found}"),
            cause="the local file is not what its digest says, or the transport is broken",
        )


def put(task: Upload, shell: Shell) -> bool:
    """Put the file; False if a file of that digest was there already.

    Raises:
        ColdSnapError: ``upload.failed``, ``upload.digest-mismatch``, ``run.cancelled``,
            ``host.unreachable``.
    """
    # Imported here: a plan that uploads nothing loads neither subprocess nor docker code.
    if task.entry.connector == "local" and not task.entry.has_sudo:
        from coldsnap.fleet import upload_local  # noqa: PLC0415

        return upload_local.put(task)
    found, is_tmpfs = look(task, shell)
    if found:
        return False
    if task.entry.connector == "docker" and not is_tmpfs:
        from coldsnap.fleet import upload_docker  # noqa: PLC0415

        upload_docker.put(task, shell)
    else:
        from coldsnap.fleet import upload_stream  # noqa: PLC0415

        upload_stream.put(task)
    return True


def look(task: Upload, shell: Shell) -> tuple[bool, bool]:
    """(the right file is there, its folder is a tmpfs); makes the folder and sets the mode."""
    file, folder = shlex.quote(task.remote), shlex.quote(str(Path(task.remote).parent))
    script = (
        f"mkdir -p {folder} || exit 1; stat -f -c %T {folder}; "
        f'if [ -f {file} ] && [ ! -L {file} ] && [ "$(stat -c %s {file})" = {task.size} ]; '
        f"then sha256sum <{file}; fi"
    )
    status, stdout, stderr = shell(script, task.hash_seconds)
    if status != 0:
        raise task.failed("its folder cannot be made", *stderr.splitlines())
    words = stdout.split()
    is_there = task.sha256 in words[1:]
    if is_there:
        shell(f"chmod {task.mode:o} {file}", BASE_SECONDS)
    return is_there, words[:1] == ["tmpfs"]


def settle_script(task: Upload) -> str:
    """Shell text that checks the temporary file and gives it its name; prints the digest.

    The size is looked at first: what a broken connection left is not worth hashing.
    """
    temporary, final = shlex.quote(task.temporary), shlex.quote(task.remote)
    folder = shlex.quote(str(Path(task.remote).parent))
    return (
        f'[ "$(stat -c %s {temporary})" = {task.size} ] || exit {_SHORT}; '
        f'set -- $(sha256sum <{temporary}); echo $1; [ "$1" = {task.sha256} ] || exit {_DIFFERS}; '
        f"[ ! -d {final} ] || exit {_FOLDER}; chmod {task.mode:o} {temporary} && "
        f"mv -f {temporary} {final} && {{ sync {folder} 2>/dev/null || sync; }}"
    )


def settled(task: Upload, status: int | None, stdout: str, stderr: str) -> None:
    """Raise what `settle_script` found wrong."""
    if status == _DIFFERS:
        raise task.corrupted((stdout.split() or ["nothing"])[-1])
    if status == _FOLDER:
        raise task.failed("a folder of that name is there")
    if status == _SHORT:
        raise task.failed("not all of it arrived", *stderr.splitlines())
    if status != 0:
        reason = (stderr.strip().splitlines() or [f"exit status {status}"])[-1]
        raise task.failed(reason, *stderr.splitlines())
