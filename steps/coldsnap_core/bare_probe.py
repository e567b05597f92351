"""The probe of the runtime pack as one text, for hosts that have no pack yet."""

from __future__ import annotations

from functools import cache
from importlib.resources import files

_RUNTIME = "coldsnap_runtime"
_PROGRAM = """\
import importlib.abc, importlib.util, sys

class Texts(importlib.abc.MetaPathFinder, importlib.abc.InspectLoader):
    def find_spec(self, name, path, target=None):
        if name in TEXTS:
            return importlib.util.spec_from_loader(name, self, is_package=self.is_package(name))

    def is_package(self, name):
        return any(other.startswith(name + ".") for other in TEXTS)

    def get_source(self, name):
        return TEXTS[name]

sys.meta_path.insert(0, Texts())
from coldsnap_runtime.probe.alone import main
sys.exit(main(sys.argv[1:], sys.stdin))
"""
"""Imports the modules out of their texts; Python >= 3.8, nothing of the host but its library."""


@cache
def probe_text() -> str:
    """A program that prints the host's profile; the arguments are those of `probe.alone`."""
    package = f"{_RUNTIME}.probe"
    texts = {_RUNTIME: "", package: ""}
    for file in sorted(files(_RUNTIME).joinpath("probe").iterdir(), key=lambda file: file.name):
        module, dot, kind = file.name.partition(".")
        if dot + kind == ".py" and module != "__init__":
            texts[f"{package}.{module}"] = file.read_text("utf-8")
    return f"TEXTS = {texts!r}\n{_PROGRAM}"
