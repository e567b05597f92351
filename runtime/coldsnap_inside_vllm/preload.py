"""Modules that a vLLM server needs, for a template that loads them before it is parked.

Importing this module imports them. Names change from version to version: what is not there is
left to the engine, which imports by itself whatever it needs.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import sys

from coldsnap_inside_vllm.forking import uses_cuda

MODEL_VARIABLE = "COLDSNAP_MODEL"
"""Folder of the model, whose architecture and tokenizer have modules of their own."""
_MODULES = (
    "vllm.entrypoints.openai.api_server",
    "vllm.engine.arg_utils",
    "vllm.v1.engine.async_llm",
    "vllm.v1.engine.core",
    "vllm.v1.executor.uniproc_executor",
    "vllm.v1.executor.multiproc_executor",
    "vllm.v1.core.sched.scheduler",
    "vllm.v1.core.sched.async_scheduler",
    "vllm.v1.structured_output",
    "vllm.compilation.backends",
    "vllm.compilation.cuda_graph",
    "vllm.compilation.decorators",
    "vllm.model_executor.model_loader",
    "vllm.model_executor.model_loader.default_loader",
    "vllm.distributed.parallel_state",
    "torch._dynamo",
    "torch._inductor.compile_fx",
    "torch._inductor.standalone_compile",
    "torch.distributed.distributed_c10d",
    "uvicorn",
    "uvicorn.lifespan.on",
    "uvicorn.protocols.http.httptools_impl",
    "uvloop",
    "coldsnap_inside_vllm.middleware",
    "coldsnap_inside_vllm.template_memory",
    "coldsnap_inside_vllm.payload_loader",
    "coldsnap_inside_vllm.planned_worker",
    "coldsnap_inside_vllm.worker",
)
_LATER = (
    # Loaded only when routes are made, or when a first request compiles something: found by
    # `python -X importtime`, all that took more than five milliseconds.
    "vllm.entrypoints.openai.chat_completion.api_router",
    "vllm.entrypoints.openai.completion.api_router",
    "vllm.entrypoints.openai.responses.api_router",
    "vllm.entrypoints.anthropic.api_router",
    "vllm.entrypoints.generate.generative_scoring.api_router",
    "vllm.entrypoints.generate.structured_decisions.api_router",
    "vllm.entrypoints.scale_out.derender.api_router",
    "vllm.entrypoints.scale_out.render.api_router",
    "vllm.entrypoints.scale_out.token_in_token_out.api_router",
    "vllm.entrypoints.serve.profile.api_router",
    "vllm.entrypoints.serve.tokenize.api_router",
    "vllm.distributed.elastic_ep.elastic_execute",
    "vllm.model_executor.layers.quantization.online.base",
    "vllm.transformers_utils.chat_templates",
    "model_hosting_container_standards.sagemaker",
    "uvicorn.protocols.websockets.websockets_sansio_impl",
    "sympy.physics.units",
    "sympy.tensor.tensor",
    "torch.distributed.tensor.experimental._func_map",
    "torch.export._trace",
    "torch.fx.experimental.validator",
    "torch._functorch._activation_checkpointing.remat_using_tags_for_fwd_loss_bwd_graph_pass",
    "torch._inductor.codegen.halide",
    "torch._inductor.codegen.memory_planning",
    "torch._inductor.codegen.wrapper_fxir",
    "torch._inductor.extern_node_serializer",
    "torch._inductor.fx_passes.fuse_attention",
    "torch._inductor.fx_passes.mkldnn_fusion",
    "torch._inductor.fx_passes.pad_mm",
    "torch._inductor.fx_passes.quantization",
    "torch._subclasses.schema_check_mode",
)
_CUDA_MODULES = (
    "vllm.v1.worker.gpu_model_runner",
    "vllm.v1.worker.gpu.model_runner",
    "vllm.v1.worker.gpu.warmup",
    "vllm.v1.attention.backends.flash_attn",
    "vllm.model_executor.warmup.kernel_warmup",
    "vllm.distributed.device_communicators.cuda_communicator",
)
_MOST = 1 << 20


LOADED: set[str] = set()
"""Modules that the template has; empty where nothing was loaded before it parked."""


def late_modules() -> list[str]:
    """What this process has loaded since: what further versions should load beforehand."""
    return sorted(set(sys.modules) - LOADED) if LOADED else []


def preload() -> None:
    for name in (*_MODULES, *_LATER):
        _load(name)
    platforms = importlib.import_module("vllm.platforms")
    if platforms.current_platform.is_cuda():
        for name in _CUDA_MODULES:
            _load(name)
    folder = os.environ.get(MODEL_VARIABLE, "")
    if folder:
        _load_model_modules(folder)
    LOADED.update(sys.modules)


def _load(name: str) -> None:
    """Where a module makes a CUDA context, the log says which: the template must do without it."""
    before = uses_cuda()
    with contextlib.suppress(Exception):
        importlib.import_module(name)
    if uses_cuda() and not before:
        sys.stderr.write(f"coldsnap: importing {name} makes a CUDA context\n")


def _load_model_modules(folder: str) -> None:
    """The classes of the model's architecture, its configuration and its tokenizer."""
    with contextlib.suppress(Exception):
        with open(os.path.join(folder, "config.json"), encoding="utf-8") as file:
            names = json.loads(file.read(_MOST))["architectures"]
        registry = importlib.import_module("vllm.model_executor.models.registry")
        for name in names:
            module, _class = registry._VLLM_MODELS[name]  # noqa: SLF001 - it has no other way
            _load(f"vllm.model_executor.models.{module}")
    with contextlib.suppress(Exception):
        transformers = importlib.import_module("transformers")
        transformers.AutoConfig.from_pretrained(folder, local_files_only=True)
        transformers.AutoTokenizer.from_pretrained(folder, local_files_only=True)


preload()
