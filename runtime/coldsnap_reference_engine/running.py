"""A server from start to end: ports, load, warm-up, serving, a drained stop."""

from __future__ import annotations

import os
import signal
import threading

from coldsnap_reference_engine.control import ControlHandler
from coldsnap_reference_engine.engine import Engine, Options, Timeline, log
from coldsnap_reference_engine.gate import Gate, Phase
from coldsnap_reference_engine.http_server import Handler, Server
from coldsnap_reference_engine.lifecycle import Lifecycle
from coldsnap_reference_engine.serving import ServingHandler

_STOP_SECONDS = 10.0


def run(options: Options, timeline: Timeline, host: str, port: int, control_port: int) -> int:
    """Serve until SIGTERM or SIGINT; 0 when every request was finished.

    Raises:
        ColdSnapError: the model cannot be loaded.
        OSError: a port is taken.
    """
    gate = Handler.gate = Gate()
    ended = _on_signal(gate)
    serving = Server(host, port, ServingHandler)
    control = Server("127.0.0.1", control_port, ControlHandler)
    serving.start("http")
    control.start("control")
    timeline.mark("imports and ports")
    engine = Engine(options, timeline, gate)
    ServingHandler.engine = ControlHandler.engine = engine
    ControlHandler.lifecycle = Lifecycle(engine, serving)
    gate.turn(Phase.SERVING)
    log(f"serving {engine.model_name} on http://{host}:{serving.server_address[1]}")
    ended.wait()
    gate.turn(Phase.STOPPING)
    is_drained = gate.drain(_STOP_SECONDS)
    log("stopped" if is_drained else "stopped with requests unfinished")
    return 0 if is_drained else 1


def _on_signal(gate: Gate) -> threading.Event:
    """An event that a termination signal sets; while loading the process just ends.

    A thread waits for the signals, because a handler could run inside the lock of a waiting event.
    """
    ended = threading.Event()
    numbers = {signal.SIGTERM, signal.SIGINT}
    signal.pthread_sigmask(signal.SIG_BLOCK, numbers)

    def wait() -> None:
        number = signal.sigwait(numbers)
        if gate.phase is Phase.LOADING:
            os._exit(128 + number)
        ended.set()

    threading.Thread(target=wait, name="signals", daemon=True).start()
    return ended
