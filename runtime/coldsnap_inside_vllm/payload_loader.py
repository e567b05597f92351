"""The load format ``coldsnap``: parameters out of the payload pack, else as vLLM loads them.

vLLM creates the model, this fills it, vLLM brings it into the form that its kernels want: so
bytes are those that the checkpoint gave at capture, whatever is made of them afterwards.
Where a template hands over COLDSNAP_EXPORT, the pack is written as soon as they are loaded.
"""

from __future__ import annotations

import copy
import os
from typing import Any

from vllm.logger import init_logger
from vllm.model_executor.model_loader import register_model_loader
from vllm.model_executor.model_loader.default_loader import DefaultModelLoader

from coldsnap.artifact.errors import ColdSnapError
from coldsnap_inside_vllm.parameter_table import UnfitError
from coldsnap_inside_vllm.parameters import export_parameters, fill_parameters, why
from coldsnap_inside_vllm.phases import phase

LOAD_FORMAT = "coldsnap"
PAYLOAD, INDEX = "COLDSNAP_PAYLOAD", "COLDSNAP_PAYLOAD_INDEX"
EXPORT = "COLDSNAP_EXPORT"
PROVIDER = "COLDSNAP_PROVIDER"
"""``auto``, ``native`` (or no start) or ``recovery``."""
logger = init_logger("vllm.coldsnap")


class PayloadModelLoader(DefaultModelLoader):  # type: ignore[misc]  # vLLM has no types here
    def __init__(self, load_config: Any) -> None:
        otherwise = copy.copy(load_config)
        otherwise.load_format = "auto"
        super().__init__(otherwise)

    def load_weights(self, model: Any, model_config: Any) -> None:
        """Raises RuntimeError where the native provider is demanded and does not work."""
        pack, index = os.environ.get(PAYLOAD, ""), os.environ.get(INDEX, "")
        with phase("payload") as attributes:
            reason = _fill(model, pack, index, attributes)
        if reason:
            logger.info("weights come from the model's files: %s", reason)
            with phase("weights") as attributes:
                attributes |= {"provider": "recovery", "reason": reason}
                super().load_weights(model, model_config)
        if folder := os.environ.get(EXPORT):
            with phase("export") as attributes:
                _export(model, folder, attributes)


def register_loader() -> None:
    register_model_loader(LOAD_FORMAT)(PayloadModelLoader)


def _fill(model: Any, pack: str, index: str, attributes: dict[str, Any]) -> str:
    """Empty if the parameters are filled; else why they are not."""
    provider = os.environ.get(PROVIDER) or "auto"
    reason = "it was asked for" if provider == "recovery" else ""
    if not reason and not (pack and index and os.path.exists(pack) and os.path.exists(index)):
        reason = "there is no payload pack"
    if not reason:
        try:
            _require_one_worker()
            moved = fill_parameters(model, pack, index)
        except (ColdSnapError, UnfitError) as error:
            reason = why(error)
            if isinstance(error, ColdSnapError):
                attributes["code"] = error.code
        else:
            logger.info("%d tensors, %d bytes from the payload pack", moved.tensors, moved.bytes)
            attributes |= {"provider": "native", "bytes": moved.bytes}
            attributes["copy_seconds"] = round(moved.seconds, 4)
            return ""
    attributes |= {"provider": "none", "reason": reason}
    if provider == "native":
        raise RuntimeError(f"the native provider does not work: {reason}")
    return reason


def _require_one_worker() -> None:
    """Raises UnfitError: ranks would write one file, each its own part of the model."""
    from vllm.distributed.parallel_state import get_world_group  # noqa: PLC0415

    count = int(get_world_group().world_size)
    if count > 1:
        raise UnfitError(f"a payload pack is of one worker, and this unit has {count}")


def _export(model: Any, folder: str, attributes: dict[str, Any]) -> None:
    """A model that cannot be exported starts all the same; its capture has no payload."""
    try:
        _require_one_worker()
        moved = export_parameters(model, folder)
    except (ColdSnapError, UnfitError) as error:
        attributes["reason"] = why(error)
        logger.warning("no payload pack is written: %s", why(error))
    else:
        attributes |= {"bytes": moved.bytes, "tensors": moved.tensors}
