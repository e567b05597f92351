"""What can go wrong with a connection or a command, told as a ColdSnapError."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

from paramiko import (
    AuthenticationException,
    BadHostKeyException,
    SSHException,
)
from paramiko.ssh_exception import NoValidConnectionsError
from pyinfra.api.exceptions import PyinfraError

from coldsnap.artifact.errors import ColdSnapError

if TYPE_CHECKING:
    from coldsnap.fleet.child.lane import Outcome
    from coldsnap.fleet.child.targets import Address

SUDO_REFUSALS = (
    "a password is required",
    "a terminal is required",
    "interactive authentication is required",
    "is not in the sudoers file",
    "is not allowed to execute",
)
_NO_SSH = ("banner", "No existing session")


def connect_error(address: Address, error: Exception) -> ColdSnapError:
    """The error of a failed connection attempt: which host, where, why, what to do."""
    cause = _root(error)
    if isinstance(cause, AuthenticationException):
        return _auth_failed(address, str(cause))
    if isinstance(cause, BadHostKeyException) or "does not match" in str(error):
        return ColdSnapError(
            "host.key-changed",
            f"{address.label} shows another host key than the known one",
            where=address.name,
            cause="the host was installed again, or somebody is between you and it",
            remedy=f"check the host; then: ssh-keygen -R {_known_name(address)}",
        )
    if "No host key for" in str(cause):
        return _key_unknown(address)
    if isinstance(cause, PyinfraError):
        return _auth_failed(address, str(cause))
    reason, remedy = _network_reason(address, cause)
    return ColdSnapError(
        "host.unreachable",
        f"{address.label} cannot be reached: {reason}",
        where=address.name,
        remedy=remedy,
    )


def _auth_failed(address: Address, reason: str) -> ColdSnapError:
    key = address.data.get("ssh_key")
    offered = f"key {key}" if key else "the keys of the agent and of ~/.ssh"
    remedy = f"make this work without a prompt: {ssh_command(address)} true"
    if "is encrypted" in reason:
        reason = "the private key has a passphrase, and none is asked for here"
        remedy = f"ssh-add {key}, and leave key out of the inventory"
    return ColdSnapError(
        "host.auth-failed",
        f"{address.label} does not let us in",
        where=address.name,
        details=(f"offered: {offered}",),
        cause=reason,
        remedy=remedy,
    )


def _key_unknown(address: Address) -> ColdSnapError:
    known = address.data.get("ssh_known_hosts_file") or "~/.ssh/known_hosts"
    port = address.data.get("ssh_port") or 22
    host = address.data.get("ssh_hostname") or address.name
    return ColdSnapError(
        "host.key-unknown",
        f"the host key of {address.label} is not in {known}",
        where=address.name,
        remedy=f"compare and add it: ssh-keyscan -p {port} {host} >> {known} "
        "(or set strict: accept-new in the inventory)",
    )


def _network_reason(address: Address, error: BaseException) -> tuple[str, str]:
    if isinstance(error, NoValidConnectionsError):
        error = next(iter(error.errors.values()))
    seconds = f"{address.connect_timeout:g} s"
    if isinstance(error, socket.gaierror):
        return f"its name cannot be resolved ({error.strerror})", "check hostname in the inventory"
    if isinstance(error, TimeoutError):
        return (
            f"no answer within {seconds}",
            "check that it is up, and the route and firewall to it",
        )
    if isinstance(error, ConnectionRefusedError):
        return "nothing listens on that port", "start sshd there, or correct port in the inventory"
    if isinstance(error, SSHException) and any(word in str(error) for word in _NO_SSH):
        return "it takes the connection but does not speak ssh", "correct hostname or port"
    if isinstance(error, EOFError):
        return "it closed the connection", "check sshd's log there (MaxStartups, AllowUsers)"
    text = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return str(text), f"try it by hand: {ssh_command(address)} true"


def ssh_command(address: Address) -> str:
    """The OpenSSH command line that goes the same way, for people."""
    data = address.data
    parts = ["ssh", "-o", "BatchMode=yes"]
    if data.get("ssh_known_hosts_file"):
        parts += ["-o", f"UserKnownHostsFile={data['ssh_known_hosts_file']}"]
    if data.get("ssh_key"):
        parts += ["-i", str(data["ssh_key"])]
    if data.get("ssh_port"):
        parts += ["-p", str(data["ssh_port"])]
    user = f"{data['ssh_user']}@" if data.get("ssh_user") else ""
    return " ".join([*parts, f"{user}{data.get('ssh_hostname') or address.name}"])


def _known_name(address: Address) -> str:
    """As ssh-keygen -R wants it, with the file if it is not the usual one."""
    host = address.data.get("ssh_hostname") or address.name
    port = address.data.get("ssh_port") or 22
    known = address.data.get("ssh_known_hosts_file")
    name = f"{host}" if port == 22 else f"[{host}]:{port}"  # noqa: PLR2004  # ssh's own port
    return f"{name} -f {known}" if known else name


def _root(error: BaseException) -> BaseException:
    """What pyinfra hides: it raises ConnectError while it handles the real one."""
    while error.__context__ is not None and type(error).__name__ == "ConnectError":
        error = error.__context__
    return error


def docker_error(address: Address, outcome: Outcome) -> ColdSnapError:
    """Why a container cannot be used."""
    said = outcome.stderr.text().strip().splitlines()
    reason = said[-1] if said else "it is not running"
    remedy = f"start it: docker start {address.data['docker_identifier']}"
    if "Cannot connect to the Docker daemon" in reason:
        remedy = "start dockerd, or set DOCKER_HOST"
    elif "not found" in reason and "docker" in reason.split(":")[-2:][0]:
        remedy = "install the docker command"
    return ColdSnapError(
        "host.unreachable",
        f"{address.label} cannot be reached: {reason}",
        where=address.name,
        remedy=remedy,
    )


def lost_error(address: Address, reason: str, *, changed: bool) -> ColdSnapError:
    """The connection broke in the middle of something."""
    return ColdSnapError(
        "host.unreachable",
        f"the connection to {address.label} broke: {reason}",
        where=address.name,
        cause="what ran there may or may not have come to its end" if changed else "",
        remedy="check the host, then: coldsnap plan resume" if changed else "check the host",
        changed=changed,
    )


def sudo_refusal(address: Address, outcome: Outcome) -> ColdSnapError | None:
    """The error if `outcome` failed because sudo refused; we never ask for passwords."""
    lines = outcome.stderr.text().splitlines()
    found = next((line for line in lines if any(word in line for word in SUDO_REFUSALS)), None)
    if not outcome.status or found is None:
        return None
    user = address.data.get("ssh_user") or "that user"
    return ColdSnapError(
        "host.sudo-refused",
        f"sudo on {address.label} wants a password or refuses",
        where=address.name,
        details=(found.strip()[:300],),
        remedy=f"allow NOPASSWD for {user} in sudoers, or connect as root",
    )


def last_lines(outcome: Outcome, count: int = 5) -> tuple[str, ...]:
    """The end of what a command said, errors first."""
    text = outcome.stderr.text().strip() or outcome.stdout.text().strip()
    return tuple(line[:500] for line in text.splitlines()[-count:])
