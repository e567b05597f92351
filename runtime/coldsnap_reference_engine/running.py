"""A server from start to end: ports, load, warm-up, serving, a drained stop."""

from __future__ import annotations

from coldsnap_reference_engine.control import ControlHandler
from coldsnap_reference_engine.engine import Engine, Options
from coldsnap_reference_engine.gate import Gate, Phase
from coldsnap_reference_engine.http_server import Handler, Server
from coldsnap_reference_engine.lifecycle import Lifecycle
from coldsnap_reference_engine.serving import ServingHandler
from coldsnap_reference_engine.signals import termination
from coldsnap_reference_engine.timeline import Timeline, log

_STOP_SECONDS = 10.0


def run(options: Options, timeline: Timeline, host: str, port: int, control_port: int) -> int:
    """Serve until SIGTERM or SIGINT, which the caller blocked; 0 when every request was finished.

    Raises:
        ColdSnapError: the model cannot be loaded.
        OSError: a port is taken.
    """
    gate = Handler.gate = Gate()
    ended = termination(gate)
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
    serving.wait_idle(1.0)
    log("stopped" if is_drained else "stopped with requests unfinished")
    return 0 if is_drained else 1
