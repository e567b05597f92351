"""One loader of safetensors files by itself: what ``payload bench --against`` times.

A file that is run, not imported: ``PYTHON -P bench_peer_child.py LOADER DEVICE``. It needs the
interpreter that has the loader, and nothing of coldsnap. Requests and answers are JSON lines:

- first, unasked: ``{"ready": true, "version": ..}`` or ``{"error": ..}``
- ``{"load": PATH, "samples": [[tensor, offset, length], ..]}`` ->
  ``{"seconds": .., "bytes": .., "samples": [hex, ..]}`` or ``{"error": ..}``

The clock runs from the call of the loader to the moment at which all tensors are in memory of
their own on the device.
"""

from __future__ import annotations

import gc
import hashlib
import importlib.metadata
import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any

Tensors = dict[str, Any]
"""Tensor by name."""
Load = Callable[[str, str], "tuple[Tensors, Any]"]
"""(path, device) -> tensors, and what must live as long as they do."""


def safetensors(path: str, device: str) -> tuple[Tensors, Any]:
    """The reference loader. On a CPU it maps the file, so the tensors are copied out."""
    from safetensors.torch import load_file  # noqa: PLC0415

    found = load_file(path, device=device)
    if device == "cpu":
        found = {name: tensor.clone() for name, tensor in found.items()}
    return found, None


def fastsafetensors(path: str, device: str) -> tuple[Tensors, Any]:
    """As it comes with bounce buffers: cuFile is a variant of its own."""
    return _fastsafetensors(path, device, nogds=True)


def fastsafetensors_gds(path: str, device: str) -> tuple[Tensors, Any]:
    """By cuFile, its own default on GPUs."""
    return _fastsafetensors(path, device, nogds=False)


def _fastsafetensors(path: str, device: str, *, nogds: bool) -> tuple[Tensors, Any]:
    from fastsafetensors import SafeTensorsFileLoader, SingleGroup  # noqa: PLC0415

    loader = SafeTensorsFileLoader(SingleGroup(), device, nogds=nogds)
    loader.add_filenames({0: [path]})
    buffers = loader.copy_files_to_device()
    return {name: buffers.get_tensor(name) for name in loader.get_keys()}, (loader, buffers)


def instanttensor(path: str, device: str) -> tuple[Tensors, Any]:
    """Its defaults: O_DIRECT for files on disks, also for those in the page cache."""
    from instanttensor import safe_open  # noqa: PLC0415

    with safe_open(path, framework="pt", device=device) as file:
        return dict(file.tensors()), None


def instanttensor_buffered(path: str, device: str) -> tuple[Tensors, Any]:
    """Through the page cache."""
    from instanttensor import BackendPolicy, safe_open  # noqa: PLC0415

    with safe_open(path, framework="pt", device=device, backend=BackendPolicy.BUFFERED) as file:
        return dict(file.tensors()), None


def instanttensor_mmap(path: str, device: str) -> tuple[Tensors, Any]:
    """Through a mapping of the file, what it takes for tmpfs."""
    from instanttensor import Backend, safe_open  # noqa: PLC0415

    with safe_open(path, framework="pt", device=device, backend=Backend.MMAP) as file:
        return dict(file.tensors()), None


def runai(path: str, device: str) -> tuple[Tensors, Any]:
    """The Run:ai model streamer, straight to the device."""
    from runai_model_streamer import SafetensorsStreamer  # noqa: PLC0415

    with SafetensorsStreamer() as streamer:
        try:
            streamer.stream_files([path], device=device)
        except TypeError:  # before it could stream to devices
            streamer.stream_files([path])
            return {name: tensor.to(device) for name, tensor in streamer.get_tensors()}, None
        return dict(streamer.get_tensors()), None


LOADERS: dict[str, tuple[str, Load]] = {
    "safetensors": ("safetensors", safetensors),
    "fastsafetensors": ("fastsafetensors", fastsafetensors),
    "fastsafetensors, cuFile": ("fastsafetensors", fastsafetensors_gds),
    "instanttensor": ("instanttensor", instanttensor),
    "instanttensor, buffered": ("instanttensor", instanttensor_buffered),
    "instanttensor, mmap": ("instanttensor", instanttensor_mmap),
    "runai": ("runai-model-streamer", runai),
}
"""Name -> distribution and loader."""


class Child:
    def __init__(self, loader: str, device: str) -> None:
        import torch  # noqa: PLC0415 - a missing torch is an answer

        self._torch = torch
        self._device = "cpu" if device == "host" else "cuda:0"
        if self._device != "cpu":
            if not torch.cuda.is_available():
                raise RuntimeError("torch sees no GPU")
            torch.zeros(1, device=self._device)
        distribution, self._load = LOADERS[loader]
        __import__(distribution.replace("-", "_"))
        self.version = importlib.metadata.version(distribution)

    def load(self, path: str, samples: list[tuple[str, int, int]]) -> dict[str, Any]:
        """Load once, sample, and let go of everything again."""
        self._wait()
        begin = time.monotonic()
        tensors, kept = self._load(path, self._device)
        self._wait()
        seconds = time.monotonic() - begin
        size = sum(tensor.numel() * tensor.element_size() for tensor in tensors.values())
        wrong = [name for name, tensor in tensors.items() if tensor.device.type != self._device[:4]]
        if wrong and self._device != "cpu":
            return {"error": f"tensor {wrong[0]} is on {tensors[wrong[0]].device}"}
        digests = [self._digest(tensors[name], at, length) for name, at, length in samples]
        tensors.clear()
        for part in kept or ():
            part.close()
        del kept
        self._free(size)
        return {"seconds": seconds, "bytes": size, "samples": digests}

    def _digest(self, tensor: Any, at: int, length: int) -> str:
        piece = tensor.contiguous().view(-1).view(self._torch.uint8)[at : at + length].cpu()
        return hashlib.sha256(piece.numpy().tobytes()).hexdigest()

    def _wait(self) -> None:
        if self._device != "cpu":
            self._torch.cuda.synchronize()

    def _free(self, size: int) -> None:
        """Keep torch's own cache of device memory for the next load while there is plenty."""
        gc.collect()
        if self._device != "cpu" and self._torch.cuda.mem_get_info()[0] < 3 * size:
            self._torch.cuda.empty_cache()


def main(loader: str, device: str) -> None:
    """Serve requests until there are no more."""
    answers = os.fdopen(os.dup(1), "w")
    # What loaders print must not get between the answers.
    os.dup2(2, 1)

    def answer(value: dict[str, Any]) -> None:
        answers.write(json.dumps(value) + "\n")
        answers.flush()

    try:
        child = Child(loader, device)
    except BaseException as error:  # noqa: BLE001 - whatever keeps it from running is the answer
        answer({"error": _worded(error)})
        return
    answer({"ready": True, "version": child.version})
    for line in sys.stdin:
        request = json.loads(line)
        try:
            answer(child.load(request["load"], request["samples"]))
        except BaseException as error:  # noqa: BLE001 - same
            answer({"error": _worded(error)})


def _worded(error: BaseException) -> str:
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}"[:400]


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
