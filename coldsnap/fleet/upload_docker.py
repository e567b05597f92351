"""Upload into a running container: a tar stream to the docker API's archive endpoint."""

from __future__ import annotations

import shlex
import tarfile
import time
from collections.abc import Iterator
from pathlib import Path

from coldsnap.artifact.errors import ColdSnapError
from coldsnap.fleet.upload import Shell, Upload, settle_script, settled

_CHUNK = 1 << 20


def put(task: Upload, shell: Shell) -> None:
    """As `coldsnap.fleet.upload.put`, for a file that is known not to be there."""
    import docker  # noqa: PLC0415  # 0.2 s, and only for containers

    container = str(task.entry.data["docker_identifier"])
    folder = str(Path(task.temporary).parent)
    try:
        client = docker.from_env(timeout=int(task.hash_seconds))
        try:
            found = client.containers.get(container)
            found.put_archive(folder, _tar(task))
        finally:
            client.close()
        status, stdout, stderr = shell(_settle(task), task.hash_seconds)
    except docker.errors.DockerException as error:
        raise task.failed(str(error)[:300]) from error
    except (OSError, ColdSnapError):
        shell(f"rm -f {shlex.quote(task.temporary)}", task.hash_seconds)
        raise
    settled(task, status, stdout, stderr)


def _settle(task: Upload) -> str:
    temporary = shlex.quote(task.temporary)
    return (
        f"trap 'rm -f '{shlex.quote(temporary)} EXIT; "
        f"sync {temporary} 2>/dev/null || sync; {settle_script(task)}"
    )


def _tar(task: Upload) -> Iterator[bytes]:
    """A tar archive of the one file, made while it is sent."""
    header = tarfile.TarInfo(Path(task.temporary).name)
    header.size, header.mode, header.mtime = task.size, task.mode, int(time.time())
    yield header.tobuf(tarfile.GNU_FORMAT)
    done = 0
    with task.local.open("rb") as source:
        while done < task.size and (block := source.read(min(_CHUNK, task.size - done))):
            done += len(block)
            yield block
            task.progress(done)
    if done != task.size:
        raise task.failed("the local file became shorter while it was read")
    padding = -task.size % tarfile.BLOCKSIZE
    yield b"\0" * (padding + 2 * tarfile.BLOCKSIZE)
