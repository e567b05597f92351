"""The core pack: step types that know no serving engine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from coldsnap.sdk import Pack, Step
from coldsnap_core.accept.step import Accept
from coldsnap_core.barrier.step import BarrierStep
from coldsnap_core.checkpoint.step import Checkpoint
from coldsnap_core.collect.step import Collect
from coldsnap_core.evict.step import Evict
from coldsnap_core.expose.step import Expose
from coldsnap_core.hydrate.step import Hydrate
from coldsnap_core.launch.step import Launch
from coldsnap_core.materialize.step import Materialize
from coldsnap_core.page_cache.step import PageCache
from coldsnap_core.probe.step import Probe
from coldsnap_core.publish.step import Publish
from coldsnap_core.quiesce.step import Quiesce
from coldsnap_core.restore.step import Restore
from coldsnap_core.resume.step import Resume
from coldsnap_core.sleep.step import Sleep
from coldsnap_core.stage.step import Stage
from coldsnap_core.status.step import Status
from coldsnap_core.wake.step import Wake

STEPS: dict[str, type[Step[Any]]] = {
    "core.accept": Accept,
    "core.barrier": BarrierStep,
    "core.checkpoint": Checkpoint,
    "core.collect": Collect,
    "core.evict": Evict,
    "core.expose": Expose,
    "core.hydrate": Hydrate,
    "core.launch": Launch,
    "core.materialize": Materialize,
    "core.page-cache": PageCache,
    "core.probe": Probe,
    "core.publish": Publish,
    "core.quiesce": Quiesce,
    "core.restore": Restore,
    "core.resume": Resume,
    "core.sleep": Sleep,
    "core.stage": Stage,
    "core.status": Status,
    "core.wake": Wake,
}

PACK = Pack("core", STEPS, Path(__file__).parent)
