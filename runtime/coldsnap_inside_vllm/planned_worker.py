"""vLLM's worker with a start-up plan (``--worker-cls``): no profiling where one fits."""

from __future__ import annotations

import sys
from typing import Any

from vllm.logger import init_logger
from vllm.platforms import current_platform

from coldsnap_inside_vllm.graphs import recreate
from coldsnap_inside_vllm.later import without_graphs
from coldsnap_inside_vllm.phases import phase
from coldsnap_inside_vllm.startup_plan import StartupPlan, planned_kv, read_plan

if current_platform.is_cpu():
    from vllm.v1.worker.cpu_worker import CPUWorker as _Worker
else:
    from vllm.v1.worker.gpu_worker import Worker as _Worker

logger = init_logger("vllm.coldsnap")


def _late_modules() -> int:
    """How many modules this process had to load itself; their names are in the debug log."""
    preload = sys.modules.get("coldsnap_inside_vllm.preload")
    late: list[str] = preload.late_modules() if preload is not None else []
    logger.debug("modules that no template had: %s", " ".join(late))
    return len(late)


class PlannedWorker(_Worker):  # type: ignore[misc]  # vLLM has no types here
    _found: StartupPlan | None = None
    _is_planned = False
    _lacks_graphs = False

    def init_device(self) -> Any:
        with phase("device"):
            return super().init_device()

    def load_model(self, *args: Any, **kwargs: Any) -> Any:
        with phase("model"):
            return super().load_model(*args, **kwargs)

    def determine_available_memory(self) -> int:
        """As planned, else as profiled; either is what the next plan says."""
        here = self._here()
        plan, reason = read_plan(self.rank)
        size = 0
        if plan is not None:
            size, reason = planned_kv(plan, here)
        if size and getattr(self.model_runner, "supports_mm_inputs", False):
            size, reason = 0, "profiling of a multimodal model makes its encoder cache"
        with phase("profile") as attributes:
            if size:
                self._is_planned = True
                self._without_profiling()
                attributes |= {"planned": True, "kv_bytes": size}
                logger.info("no profiling: the start-up plan gives %d bytes to KV", size)
            else:
                logger.info("profiling: no start-up plan is used, %s", reason)
                attributes |= {"planned": False, "reason": reason}
                size = int(super().determine_available_memory())
        self._found = StartupPlan.from_json({**here.to_json(), "kv_bytes": size})
        return size

    def initialize_from_config(self, *args: Any, **kwargs: Any) -> Any:
        with phase("kv"):
            return super().initialize_from_config(*args, **kwargs)

    def compile_or_warm_up_model(self) -> Any:
        with phase("warm-up") as attributes:
            with without_graphs(self.model_runner, planned=self._is_planned) as left_out:
                done = super().compile_or_warm_up_model()
            self._lacks_graphs = left_out
            attributes["modules_loaded_late"] = _late_modules()
            if left_out:
                attributes["graphs"] = "later"
        return done

    def coldsnap_lacks_graphs(self) -> bool:
        return self._lacks_graphs

    def coldsnap_capture_graphs(self) -> int:
        """What the warm-up left out; the bytes that graphs take."""
        if not self._lacks_graphs:
            return 0
        with phase("graphs") as attributes:
            attributes["bytes"] = size = recreate(self)
        self._lacks_graphs = False
        return size

    def coldsnap_startup_plan(self) -> dict[str, Any] | None:
        """For the next start with this configuration; None of a worker without KV."""
        return self._found.to_json() if self._found else None

    def _without_profiling(self) -> None:
        """What vLLM does while it profiles and needs all the same."""
        if current_platform.is_cpu() and self._should_warm_up_model():
            self.model_runner.warming_up_model()

    def _here(self) -> StartupPlan:
        import torch  # noqa: PLC0415
        import vllm  # noqa: PLC0415

        on_device = not current_platform.is_cpu()
        capability = current_platform.get_device_capability() if on_device else None
        snapshot = getattr(self, "init_snapshot", None)
        compilation = self.vllm_config.compilation_config
        return StartupPlan(
            vllm=str(vllm.__version__),
            torch=str(torch.__version__),
            device=str(torch.cuda.get_device_name()) if on_device else "cpu",
            capability=capability.as_version_str() if capability else "",
            config=str(self.vllm_config.compute_hash()),
            device_bytes=int(snapshot.total_memory) if snapshot else 0,
            free_bytes=int(snapshot.free_memory) if snapshot else 0,
            requested_bytes=int(self.requested_memory) if snapshot else 0,
            kv_bytes=0,
            graph_sizes=tuple(sorted(compilation.cudagraph_capture_sizes or ())),
        )
