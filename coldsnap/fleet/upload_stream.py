"""Upload through the standard input of a shell on the host: OpenSSH, sudo, or docker exec.

OpenSSH moves bytes two to three times as fast as an SFTP client in Python, and needs no SFTP
subsystem; the checks of `upload.settle_script` run in the same shell, so there is one connection.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shlex
import subprocess
import time
from pathlib import Path
from typing import IO, cast

from coldsnap.artifact.errors import ColdSnapError
from coldsnap.fleet.upload import Upload, settle_script, settled

_CHUNK = 1 << 20
_PROGRESS_SECONDS = 0.2
_SSH_FAILED = 255
_F_SETPIPE_SZ = 1031


def put(task: Upload) -> None:
    """As `coldsnap.fleet.upload.put`, for a file that is known not to be there."""
    process = _start(task)
    task.stop = process.kill  # the host sees the end of its input, finds a wrong digest, cleans up
    try:
        _feed(task, process)
        stdout, stderr = process.communicate()
    except BaseException:
        process.kill()
        process.wait()
        raise
    finally:
        task.stop = None
    task.progress(task.size)
    said = stderr.decode("utf-8", errors="replace")
    if process.returncode == _SSH_FAILED and task.entry.connector == "ssh":
        raise _unreachable(task, said)
    settled(task, process.returncode, stdout.decode("utf-8", errors="replace"), said)


def _start(task: Upload) -> subprocess.Popen[bytes]:
    command = argv(task)
    try:
        return subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
    except FileNotFoundError:
        raise task.failed(f"{command[0]} is not installed on this machine") from None


def argv(task: Upload) -> list[str]:
    """The command that runs `receive_script` on the host."""
    entry = task.entry
    script = receive_script(task)
    shell = ["sh", "-c", script]
    if entry.has_sudo:
        shell = ["sudo", "-H", "-n", *(["-u", entry.sudo_user] if entry.sudo_user else []), *shell]
    if entry.connector == "ssh":
        return [*ssh_argv(task), shlex.join(shell)]
    if entry.connector == "docker":
        return ["docker", "exec", "-i", str(entry.data["docker_identifier"]), *shell]
    return shell


def receive_script(task: Upload) -> str:
    """Shell text that stores its standard input durably, checks it and gives it its name."""
    temporary = shlex.quote(task.temporary)
    return (
        f"umask 077; trap 'rm -f '{shlex.quote(temporary)} EXIT; "
        f"dd of={temporary} bs=1048576 conv=fsync 2>&1 >/dev/null | grep -i error >&2; "
        f"{settle_script(task)}"
    )


def ssh_argv(task: Upload) -> list[str]:
    """OpenSSH with the same key, known hosts and user as pyinfra's connection."""
    data = task.entry.data
    options = {
        "BatchMode": "yes",
        "ConnectTimeout": str(max(1, round(task.entry.connect_timeout))),
        "ServerAliveInterval": "15",
        "ServerAliveCountMax": "2",
        "StrictHostKeyChecking": str(data.get("ssh_strict_host_key_checking") or "yes"),
        # Hardware AES makes it the fastest by far, and every OpenSSH since 6.2 has it.
        "Ciphers": "^aes128-gcm@openssh.com",
        "LogLevel": "ERROR",
    }
    if data.get("ssh_known_hosts_file"):
        options["UserKnownHostsFile"] = str(Path(str(data["ssh_known_hosts_file"])).expanduser())
    command = ["ssh", "-T"]
    if data.get("ssh_config_file"):
        command += ["-F", str(data["ssh_config_file"])]
    if data.get("ssh_key"):
        command += ["-i", str(data["ssh_key"])]
        options["IdentitiesOnly"] = "yes"
    if data.get("ssh_port"):
        command += ["-p", str(data["ssh_port"])]
    if data.get("ssh_user"):
        command += ["-l", str(data["ssh_user"])]
    for name, value in options.items():
        command += ["-o", f"{name}={value}"]
    return [*command, "--", str(data.get("ssh_hostname") or task.entry.name)]


def _feed(task: Upload, process: subprocess.Popen[bytes]) -> None:
    stdin = cast("IO[bytes]", process.stdin)
    with contextlib.suppress(OSError):  # a limit of the user; it only costs speed
        fcntl.fcntl(stdin, _F_SETPIPE_SZ, _CHUNK)
    try:
        # A broken pipe: the other side gave up; its exit status and words say why.
        with contextlib.suppress(BrokenPipeError), task.local.open("rb") as source:
            _splice(task, source.fileno(), stdin.fileno())
    finally:
        with contextlib.suppress(BrokenPipeError):
            stdin.close()
        process.stdin = None  # communicate() must not touch it again


def _splice(task: Upload, source: int, pipe: int) -> None:
    done, told = 0, 0.0
    while count := os.splice(source, pipe, _CHUNK):
        done += count
        if time.monotonic() - told > _PROGRESS_SECONDS:
            told = time.monotonic()
            task.progress(done)


def _unreachable(task: Upload, said: str) -> ColdSnapError:
    lines = [line.strip() for line in said.strip().splitlines() if line.strip()]
    return ColdSnapError(
        "host.unreachable",
        f"the ssh connection for the upload of {task.remote} failed",
        where=task.where,
        details=tuple(line[:300] for line in lines[-3:]),
        remedy="check the host; the upload can be repeated",
    )
