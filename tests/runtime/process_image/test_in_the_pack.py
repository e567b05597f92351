"""As it runs on a target: the pack's own pycriu and pure-Python protobuf, a bare interpreter."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from image_builder import BASE, Proc, Vma, build

from coldsnap.store.archive import unpack
from coldsnap_runtime.process_image import rewrite

CODE = """
import json, sys
from pathlib import Path
pack, images, out = map(Path, sys.argv[1:])
sys.path[:0] = [str(pack), str(pack / "vendor")]
from coldsnap_runtime.process_image import rewrite
from coldsnap_runtime.process_image.fill_index import read_fill_index
heavy = sorted(name for name in sys.modules if name.startswith(("google", "pycriu")))
done = {mode: rewrite(images, out / mode, mode, pack / "bin" / "coldsnap-fill").bytes_moved
        for mode in ("ext", "mmap")}
from google.protobuf.internal import api_implementation
print(json.dumps([heavy, api_implementation.Type(), done]))
"""


def test_the_pack_makes_the_same_bytes(archive: Path, place: Path) -> None:
    pack, out = place / "pack", place / "out"
    unpack(archive, pack)
    vmas = [Vma(BASE, 900, ((0, 300), (310, 500))), Vma(BASE + (8 << 20), 300, ((0, 300),))]
    images = build(place / "images", [Proc(1000, vmas, hot={"sp": BASE + (8 << 20) + 5})])
    out.mkdir()
    argv = [sys.executable, "-I", "-S", "-c", CODE, pack, images, out]
    told = subprocess.run(argv, check=True, capture_output=True, text=True).stdout
    heavy, implementation, moved = json.loads(told)
    assert heavy == [], "importing is free where nothing is rewritten"
    assert implementation == "python"
    for mode in ("ext", "mmap"):
        mine = place / f"mine-{mode}"
        done = rewrite(images, mine, mode, pack / "bin" / "coldsnap-fill")
        assert done.bytes_moved == moved[mode] >= 800 * 4096
        files = {path.name: path.read_bytes() for path in mine.iterdir()}
        assert {path.name: path.read_bytes() for path in (out / mode).iterdir()} == files
