"""Requests in, answers out: one greenlet per request, JSON lines over the two pipes.

request   ``{"id", "do": facts|operation|job-wait|connect|shell|inventory|hosts, ...}`` or
          ``{"do": "cancel", "ids": [...]}``
answer    any number of ``{"id", "job": event}``, then ``{"id", "ok", "value" | "error"}``
The end of standard input means that the parent is gone: what runs is ended, jobs go on.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
import traceback
from collections.abc import Callable
from typing import Any

import gevent
from gevent.fileobject import FileObjectPosix
from gevent.lock import BoundedSemaphore
from gevent.os import make_nonblocking, nb_write

from coldsnap.artifact.errors import ColdSnapError
from coldsnap.fleet.child import facts, shell_calls
from coldsnap.fleet.child.inventory_files import read_inventory
from coldsnap.fleet.child.lane import LaneLog, isolate_state
from coldsnap.fleet.child.operations import Performance
from coldsnap.fleet.child.targets import Address, Target, unknown_target

ORPHAN_SECONDS = 10.0
_CHUNK = 1 << 16


class Server:
    def __init__(self, output: int) -> None:
        self._output = output
        """File descriptor of the pipe to the parent."""
        self._writing = BoundedSemaphore()
        self._targets: dict[str, Target] = {}
        self._running: dict[int, gevent.Greenlet[..., Any]] = {}
        self._performances: dict[int, Performance] = {}
        self._handlers: dict[str, Callable[[dict[str, Any]], Any]] = {
            "hosts": self._hosts,
            "connect": self._connect,
            "facts": self._facts,
            "operation": self._operation,
            "job-wait": self._job_wait,
            "shell": self._shell,
            "inventory": lambda request: read_inventory(str(request["path"])),
        }

    def serve(self, lines: Any) -> None:
        """Until the end of `lines`."""
        for line in lines:
            request = json.loads(line)
            if request["do"] == "cancel":
                self._cancel(request["ids"])
            else:
                self._running[request["id"]] = gevent.spawn(self._answer, request)
        self._end()

    def send(self, message: dict[str, Any]) -> None:
        data = memoryview(json.dumps(message, separators=(",", ":")).encode() + b"\n")
        with self._writing:
            while data:
                data = data[nb_write(self._output, data[:_CHUNK]) :]

    def _answer(self, request: dict[str, Any]) -> None:
        identity = request["id"]
        try:
            value = self._handlers[request["do"]](request)
            answer = {"id": identity, "ok": True, "value": value}
        except ColdSnapError as error:
            answer = {"id": identity, "ok": False, "error": error.to_json()}
        except gevent.GreenletExit:
            ended = ColdSnapError("run.cancelled", "cancelled", str(request.get("host", "")))
            answer = {"id": identity, "ok": False, "error": ended.to_json()}
        except Exception as failure:  # noqa: BLE001  # the border: the parent gets an error
            traceback.print_exc()
            answer = {"id": identity, "ok": False, "error": _defect(failure, request).to_json()}
        finally:
            self._running.pop(identity, None)
            self._performances.pop(identity, None)
        self.send(answer)

    def _hosts(self, request: dict[str, Any]) -> None:
        for described in request["hosts"]:
            address = Address(**described)
            known = self._targets.get(address.name)
            if known is None or known.address != address:
                self._targets[address.name] = Target(address)

    def _target(self, request: dict[str, Any]) -> Target:
        name = str(request["host"])
        if name not in self._targets:
            raise unknown_target(name)
        return self._targets[name]

    def _connect(self, request: dict[str, Any]) -> None:
        self._target(request).connect()

    def _facts(self, request: dict[str, Any]) -> list[dict[str, Any]]:
        return facts.ask(self._target(request), request["facts"], float(request["timeout"]))

    def _operation(self, request: dict[str, Any]) -> dict[str, Any]:
        return self._performance(request).perform()

    def _job_wait(self, request: dict[str, Any]) -> dict[str, Any]:
        return self._performance(request).perform_rejoined()

    def _performance(self, request: dict[str, Any]) -> Performance:
        identity = request["id"]
        performance = Performance(
            self._target(request),
            request,
            lambda event: self.send({"id": identity, "job": event}),
        )
        self._performances[identity] = performance
        return performance

    def _shell(self, request: dict[str, Any]) -> dict[str, Any]:
        return shell_calls.call(
            self._target(request), str(request["command"]), float(request["timeout"])
        )

    def _cancel(self, identities: list[int]) -> None:
        for identity in identities:
            if identity in self._running:
                self._running[identity].kill(block=False)

    def _end(self) -> None:
        for performance in self._performances.values():
            performance.orphaned = True
        gevent.killall(list(self._running.values()), timeout=ORPHAN_SECONDS)
        for target in self._targets.values():
            target.close()


def _defect(failure: Exception, request: dict[str, Any]) -> ColdSnapError:
    return ColdSnapError(
        "internal.fleet",
        f"the fleet's child failed at {request['do']}: {type(failure).__name__}: {failure}"[:500],
        where=str(request.get("host", "")),
        cause="a defect of coldsnap",
    )


def main() -> None:
    """Serve on the standard streams until the parent closes them."""
    if "COLDSNAP_FLEET_PYTHONPATH" in os.environ:  # ours was for us, not for local commands
        theirs = os.environ.pop("COLDSNAP_FLEET_PYTHONPATH")
        os.environ.pop("PYTHONPATH", None)
        if theirs:
            os.environ["PYTHONPATH"] = theirs
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    pyinfra = logging.getLogger("pyinfra")
    pyinfra.setLevel(logging.WARNING)
    pyinfra.propagate = False
    pyinfra.addHandler(LaneLog())
    logging.getLogger("paramiko").setLevel(logging.CRITICAL)
    # Prints of facts and operations must not get into the protocol.
    output = os.dup(1)
    make_nonblocking(output)
    requests = FileObjectPosix(os.dup(0), "rb")
    os.dup2(2, 1)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    sys.stdout = sys.stderr
    isolate_state()
    server = Server(output)
    server.send({"ready": os.getpid()})
    try:
        server.serve(requests)
    except BrokenPipeError:
        pass  # the parent is gone
    finally:
        os._exit(0)  # greenlets of broken connections must not hold us
