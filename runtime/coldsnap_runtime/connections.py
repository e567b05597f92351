"""TCP connections of a unit to somebody outside: a dump would tear or keep half of them."""

from __future__ import annotations

import socket
import struct
from dataclasses import dataclass
from pathlib import Path

from coldsnap_runtime.unit_processes import proc_of, processes, socket_inodes

_OPEN_STATES = {
    0x01: "established",
    0x02: "connecting",
    0x04: "closing",
    0x05: "closing",
    0x08: "closed by the peer",
    0x09: "closing",
    0x0B: "closing",
}
"""What CRIU takes for a connection. In SYN_RECV and TIME_WAIT no process holds a socket."""


@dataclass(frozen=True)
class Connection:
    local: str
    peer: str
    state: str
    inode: int
    """0 when no process holds the socket any more."""

    def __str__(self) -> str:
        return f"{self.local} <- {self.peer} ({self.state})"


def outside_connections(init_pid: int, root_pid: int) -> list[Connection]:
    """Connections held by the unit's processes whose other end none of them holds."""
    pids = [process.pid for process in processes(init_pid, root_pid)]
    inodes = socket_inodes(init_pid, pids)
    rows = _rows(proc_of(init_pid) / "1" / "net")
    ours = [row for row in rows if row.inode in inodes]
    ends = {(row.local, row.peer) for row in ours}
    return [row for row in ours if (row.peer, row.local) not in ends]


def _rows(net: Path) -> list[Connection]:
    rows: list[Connection] = []
    for name in ("tcp", "tcp6"):
        try:
            lines = (net / name).read_text().splitlines()[1:]
        except OSError:
            continue
        rows += [row for row in map(_row, lines) if row is not None]
    return rows


def _row(line: str) -> Connection | None:
    words = line.split()
    state = _OPEN_STATES.get(int(words[3], 16))
    if state is None:
        return None
    return Connection(_address(words[1]), _address(words[2]), state, int(words[9]))


def _address(text: str) -> str:
    """``0100007F:1F90`` -> ``127.0.0.1:8080``; IPv4 in IPv6 is written as IPv4."""
    host, _, port = text.partition(":")
    words = [int(host[i : i + 8], 16) for i in range(0, len(host), 8)]
    data = b"".join(struct.pack("=I", word) for word in words)
    if data[:12] == b"\0" * 10 + b"\xff\xff":
        data = data[12:]
    if len(data) == 4:  # noqa: PLR2004  (bytes of an IPv4 address)
        return f"{socket.inet_ntop(socket.AF_INET, data)}:{int(port, 16)}"
    return f"[{socket.inet_ntop(socket.AF_INET6, data)}]:{int(port, 16)}"
