"""Load an engine's modules and see that no device was touched on the way."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib
import os
import sys
from dataclasses import dataclass, field

_DEVICES = "/dev/nvidia"
_NVML = "nvmlLib"
"""pynvml and its copies keep the loaded library under this name."""
_NVML_LIBRARY = "libnvidia-ml.so.1"
_MOST_SHUTDOWNS = 64


@dataclass(frozen=True)
class Loaded:
    modules: int = 0
    """In `sys.modules`."""
    failed: dict[str, str] = field(default_factory=dict)
    """Module -> why it is not there; the engine loads it later, or does without."""
    devices: tuple[str, ...] = ()
    """Device files that are open or mapped."""
    threads: int = 1


def load(names: tuple[str, ...]) -> Loaded:
    """Import `names`, let go of NVML, put what was made out of the collector's sight."""
    failed = {}
    for name in names:
        try:
            importlib.import_module(name)
        except Exception as error:  # noqa: BLE001 - an engine of another version has other modules
            failed[name] = f"{type(error).__name__}: {error}"[:500]
    if names:
        close_nvml()
        _forget_nvml()
        gc.collect()
        gc.freeze()  # forked children do not copy pages only because they were looked at
    return Loaded(
        len(sys.modules), failed, devices_of_process(), len(os.listdir("/proc/self/task"))
    )


def devices_of_process() -> tuple[str, ...]:
    """NVIDIA device files that this process has open or mapped."""
    found = set()
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            found.add(os.readlink(f"/proc/self/fd/{name}"))
    with open("/proc/self/maps", encoding="utf-8", errors="replace") as maps:
        found.update(line.split(None, 5)[-1].strip() for line in maps if _DEVICES in line)
    return tuple(sorted(path for path in found if path.startswith(_DEVICES)))


def close_nvml() -> None:
    """Let go of NVML, which platform detection asks and may leave open.

    It holds device files (with driver 580 also ``/dev/nvidia-uvm``), and its library belongs to one
    driver. Whoever asks it again loads it again.
    """
    for module in list(sys.modules.values()):
        # Not getattr: of a module that loads its parts when they are asked for.
        library = getattr(module, "__dict__", {}).get(_NVML)
        if not isinstance(library, ctypes.CDLL):
            continue
        for _ in range(_MOST_SHUTDOWNS):  # one for each nvmlInit
            if library.nvmlShutdown() != 0:
                break
        _unload(library)
        setattr(module, _NVML, None)
        cache = module.__dict__.get("_nvmlGetFunctionPointer_cache")
        if isinstance(cache, dict):
            cache.clear()  # pointers into what is gone
    _shut_down_unnamed()


def _shut_down_unnamed() -> None:
    """NVML that no module names: torch counts devices by a handle that it drops, still initialised.

    The handle leaves a reference, so the library stays mapped; the devices that it held are closed.
    """
    try:
        library = ctypes.CDLL(_NVML_LIBRARY, mode=os.RTLD_NOLOAD | os.RTLD_LAZY)
    except OSError:  # it is not loaded
        return
    for _ in range(_MOST_SHUTDOWNS):
        if library.nvmlShutdown() != 0:
            break
    _unload(library)


def _forget_nvml() -> None:
    """Unmap it, whoever loaded it and dropped the handle: an image with it is bound to its driver.

    Where another library needs it, it stays.
    """
    for _ in range(_MOST_SHUTDOWNS):
        try:
            library = ctypes.CDLL(_NVML_LIBRARY, mode=os.RTLD_NOLOAD | os.RTLD_LAZY)
            _unload(library)  # what this look added
            _unload(library)  # one of theirs
        except OSError:  # it is gone, or not theirs
            return


def _unload(library: ctypes.CDLL) -> None:
    import _ctypes  # noqa: PLC0415 - only here

    _ctypes.dlclose(library._handle)  # noqa: SLF001 - ctypes has no other way
