"""``python -m coldsnap_reference_engine make-model|serve``."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Sequence
from pathlib import Path

from coldsnap.artifact.errors import ColdSnapError
from coldsnap_reference_engine.signals import block_termination
from coldsnap_reference_engine.timeline import Timeline, log

_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*(B|kB|KB|MB|GB|KiB|MiB|GiB)")
_UNITS = {
    "B": 1, "kB": 10**3, "KB": 10**3, "MB": 10**6, "GB": 10**9,
    "KiB": 2**10, "MiB": 2**20, "GiB": 2**30,
}  # fmt: skip


def main(argv: Sequence[str] | None = None) -> int:
    timeline = Timeline()
    arguments = parser().parse_args(argv)
    try:
        if arguments.command == "make-model":
            return _make_model(arguments)
        return _serve(arguments, timeline)
    except ColdSnapError as error:
        log(str(error))
        if error.remedy:
            log(f"remedy: {error.remedy}")
    except OSError as error:
        log(f"error[engine.failed]: {error}")
    return 1


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="coldsnap_reference_engine", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    make = commands.add_parser("make-model", help="write a model folder with random weights")
    make.add_argument("folder", type=Path)
    make.add_argument(
        "--size", type=_size, default=_size("200MB"), help="of the weights, as stored"
    )
    make.add_argument("--seed", type=int, default=0)
    make.add_argument("--dtype", choices=("bf16", "f32"), default="bf16", help="as stored")
    serve = commands.add_parser("serve", help="serve a model folder")
    serve.add_argument("--model", type=Path, required=True, help="model folder")
    serve.add_argument("--served-model-name", default="", help="default: the folder's name")
    serve.add_argument("--host", default="127.0.0.1")
    serve.add_argument("--port", type=int, default=8000)
    serve.add_argument("--control-port", type=int, default=8001, help="on 127.0.0.1 only")
    serve.add_argument("--slots", type=int, default=4, help="sequences in progress at once")
    serve.add_argument("--context", type=int, default=2048, help="longest prompt plus answer")
    serve.add_argument(
        "--tune-seconds", type=float, default=12.0, help="bound of the warm-up's search; 0: none"
    )
    serve.add_argument("--tp-size", type=int, default=1, help="tensor-parallel ranks")
    serve.add_argument("--tp-rank", type=int, default=0, help="rank 0 serves, the others follow")
    serve.add_argument("--tp-master", type=_address, default=("127.0.0.1", 0), metavar="HOST:PORT")
    return parser


def _make_model(arguments: argparse.Namespace) -> int:
    from coldsnap_reference_engine.generate import make_model  # noqa: PLC0415

    dtype = arguments.dtype.upper()
    config = make_model(arguments.folder, arguments.size, arguments.seed, dtype)
    size = config.parameters * (2 if dtype == "BF16" else 4)
    print(f"{arguments.folder}: {config.parameters} weights, {size} bytes, seed {arguments.seed}")
    return 0


def _serve(arguments: argparse.Namespace, timeline: Timeline) -> int:
    block_termination()
    from coldsnap_reference_engine.engine import Options  # noqa: PLC0415
    from coldsnap_reference_engine.ranks import Placement  # noqa: PLC0415
    from coldsnap_reference_engine.running import run  # noqa: PLC0415

    options = Options(
        model=arguments.model,
        served_name=arguments.served_model_name or arguments.model.resolve().name,
        slots=arguments.slots,
        context=arguments.context,
        placement=Placement(arguments.tp_rank, arguments.tp_size, arguments.tp_master),
        tune_seconds=max(0.0, arguments.tune_seconds),
    )
    return run(options, timeline, arguments.host, arguments.port, arguments.control_port)


def _size(text: str) -> int:
    match = _SIZE.fullmatch(text)
    if match is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not a size such as 200MB or 1GiB")
    return int(float(match[1]) * _UNITS[match[2]])


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not host or not port.isdigit() or not 0 < int(port) < 1 << 16:
        raise argparse.ArgumentTypeError(f"{text!r} is not HOST:PORT")
    return host.strip("[]"), int(port)


if __name__ == "__main__":
    sys.exit(main())
