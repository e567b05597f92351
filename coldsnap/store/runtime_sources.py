"""Where each file of the runtime pack comes from."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import shutil
import subprocess
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import coldsnap
from coldsnap.artifact.errors import ColdSnapError
from coldsnap.store.criu import Criu, find_criu
from coldsnap.store.criu_bundle import build_bundle, bundle_binary, cached_bundle

INSIDE_GROUP = "coldsnap.inside"
"""Entry points of engine packs from elsewhere: value = package that runs inside their engine."""

PRELOADED = frozenset(f"libcoldsnap_{name}.so" for name in ("guard", "mmap", "nccl", "nvml"))
"""What an engine can be started with."""
HYDRATE_LIBRARY = "libcoldsnap_hydrate.so"

_SKIPPED = ("compiler", "pyext", "testdata", "testing")


@dataclass(frozen=True)
class Source:
    path: str
    """In the pack."""
    content: Path | bytes
    executable: bool = False


def collect_sources(scratch: Path) -> tuple[list[Source], dict[str, str]]:
    """All files of the pack by path, and facts about it.

    Args:
        scratch: folder for what must be made on the way; needed until the files are read.

    Raises:
        ColdSnapError: ``runtime.no-native``, ``runtime.no-source``, ``criu.*``.
    """
    criu = find_criu()
    sources = [
        *_python_package("coldsnap_runtime", "coldsnap_runtime"),
        Source("__main__.py", _package_folder("coldsnap_runtime") / "pack_main.py"),
        *_artifact("coldsnap"),
        *_artifact("inside/coldsnap"),
        *_inside(),
        *_hydration(),
        *_native(),
        *_criu(criu, scratch),
        *_pycriu(criu),
        *_protobuf(),
    ]
    facts = {
        "coldsnap": coldsnap.__version__,
        "criu": criu.version,
        "criu-origin": criu.source,
        "protobuf": importlib.metadata.version("protobuf"),
    }
    return sorted(sources, key=lambda source: source.path), facts


def _package_folder(name: str) -> Path:
    """Folder of an installed package, which is not imported."""
    spec = importlib.util.find_spec(name)
    if spec is None or not spec.submodule_search_locations:
        raise ColdSnapError(
            "runtime.no-source",
            f"package {name} is not installed beside coldsnap",
            remedy="install coldsnap again: pip install --force-reinstall coldsnap",
        )
    return Path(next(iter(spec.submodule_search_locations)))


def _python_package(name: str, target: str) -> Iterator[Source]:
    yield from _files(_package_folder(name), target)


def _files(folder: Path, target: str, skipped: Iterable[str] = ()) -> Iterator[Source]:
    """Files of a source folder without byte code and hidden ones."""
    left_out = {"__pycache__", *skipped}
    for path in sorted(folder.rglob("*")):
        relative = path.relative_to(folder)
        if any(part in left_out or part.startswith(".") for part in relative.parts):
            continue
        if path.is_file() and path.suffix not in (".pyc", ".so"):
            yield Source(f"{target}/{relative.as_posix()}", path)


def _artifact(target: str) -> Iterator[Source]:
    folder = Path(coldsnap.__file__).parent
    yield Source(f"{target}/__init__.py", folder / "__init__.py")
    yield from _files(folder / "artifact", f"{target}/artifact")


def _inside() -> Iterator[Source]:
    """Packages that run inside an engine, with metadata so that its plug-in search finds them."""
    for name in sorted(_inside_names()):
        folder = _package_folder(name)
        yield from _files(folder, f"inside/{name}")
        entry_points = folder / "entry_points.txt"
        if entry_points.exists():
            info = f"inside/{name}-{coldsnap.__version__}.dist-info"
            yield Source(f"{info}/METADATA", _metadata(name))
            yield Source(f"{info}/entry_points.txt", entry_points)


def _inside_names() -> set[str]:
    beside = _package_folder("coldsnap_runtime").parent
    names = {path.name for path in beside.glob("coldsnap_inside_*") if _is_package(path)}
    names |= {path.name for path in beside.glob("coldsnap_*_engine") if _is_package(path)}
    return names | {point.value for point in importlib.metadata.entry_points(group=INSIDE_GROUP)}


def _is_package(path: Path) -> bool:
    return (path / "__init__.py").is_file()


def _metadata(name: str) -> bytes:
    return f"Metadata-Version: 2.1\nName: {name}\nVersion: {coldsnap.__version__}\n".encode()


def _hydration() -> Iterator[Source]:
    """What moves model bytes, for the target and inside engines; less of it without the library."""
    folder = _package_folder("coldsnap_runtime")
    yield Source("inside/coldsnap_runtime/__init__.py", folder / "__init__.py")
    yield from _files(folder / "hydrate", "inside/coldsnap_runtime/hydrate")
    yield from _files(folder / "preloads", "inside/coldsnap_runtime/preloads")
    native = _native_folder()
    for library in (native / HYDRATE_LIBRARY, native / "hydrate" / HYDRATE_LIBRARY):
        if library.is_file():
            yield Source(f"bin/{HYDRATE_LIBRARY}", library)
            yield Source(f"inside/bin/{HYDRATE_LIBRARY}", library)
            return


def _native() -> Iterator[Source]:
    for path in sorted(_native_folder().iterdir()):
        if path.is_file() and path.name.startswith("coldsnap-"):
            yield Source(f"bin/{path.name}", path, executable=True)
        elif path.name in PRELOADED:
            yield Source(f"bin/{path.name}", path)


def _native_folder() -> Path:
    """COLDSNAP_NATIVE_DIR, else the newer of what was installed and what the source tree built."""
    given = os.environ.get("COLDSNAP_NATIVE_DIR")
    candidates = [Path(given)] if given else _built_folders()
    built = [folder for folder in candidates if (folder / "coldsnap-unit").is_file()]
    if built:
        return max(built, key=lambda folder: (folder / "coldsnap-unit").stat().st_mtime)
    raise ColdSnapError(
        "runtime.no-native",
        "the native programs (coldsnap-unit ...) are not built",
        details=tuple(f"looked in {folder}" for folder in candidates),
        remedy="install coldsnap with a C compiler and CMake, or set COLDSNAP_NATIVE_DIR",
    )


def _built_folders() -> list[Path]:
    source_tree = Path(coldsnap.__file__).parent.parent / "build" / "native"
    try:
        distribution = importlib.metadata.distribution("coldsnap")
    except importlib.metadata.PackageNotFoundError:
        return [source_tree]
    return [Path(str(distribution.locate_file("coldsnap_native"))), source_tree]


def _criu(criu: Criu, scratch: Path) -> Iterator[Source]:
    folder = criu.command.resolve().parent
    if not ((folder / "criu.bin").is_file() and (folder / "lib").is_dir()):
        folder = scratch / "criu"
        _bundle(criu.command.resolve(), folder)
    for name in ("criu", "criu.bin"):
        if (folder / name).is_file():
            yield Source(f"criu/{name}", folder / name, executable=True)
    if (folder / "lib").is_dir():
        for path in sorted((folder / "lib").iterdir()):
            yield Source(f"criu/lib/{path.name}", path, executable=path.name.startswith("ld-"))


def _bundle(command: Path, folder: Path) -> None:
    """Make an installed CRIU movable; one that is no program itself is called where it is."""
    with command.open("rb") as file:
        is_program = file.read(4) == b"\x7fELF"
    if not is_program:
        folder.mkdir()
        text = f'#!/bin/sh\nexec "{command}" "$@"\n'
        (folder / "criu").write_text(text, encoding="utf-8")
        return
    bundle_binary(command, folder, _library_folders(command), Path("/"))


def _library_folders(command: Path) -> list[Path]:
    """Where the dynamic loader of this host finds the program's libraries."""
    ldd = shutil.which("ldd")
    if ldd is None:
        return [Path("/lib64"), Path("/usr/lib64"), Path("/usr/lib"), Path("/lib")]
    done = subprocess.run([ldd, str(command)], capture_output=True, text=True, check=False)
    words = (word for line in done.stdout.splitlines() for word in line.split())
    folders = dict.fromkeys(Path(word).parent for word in words if word.startswith("/"))
    return list(folders)


def _pycriu(criu: Criu) -> Iterator[Source]:
    candidates = [criu.python, Path("/usr/lib/python3/dist-packages")]
    for candidate in candidates:
        if candidate is not None and (candidate / "pycriu" / "rpc_pb2.py").is_file():
            yield from _files(candidate / "pycriu", "pycriu")
            return
    bundle = cached_bundle("trixie") or build_bundle("trixie")
    yield from _files(bundle / "python" / "pycriu", "pycriu")


def _protobuf() -> Iterator[Source]:
    """Protobuf without its compiled part: it then runs in pure Python, on any Python >= 3.10."""
    distribution = importlib.metadata.distribution("protobuf")
    folder = Path(str(distribution.locate_file("google/protobuf")))
    yield from _files(folder, "vendor/google/protobuf", _SKIPPED)
    for file in distribution.files or ():
        if file.name.upper().startswith("LICENSE"):
            place = Path(str(distribution.locate_file(file)))
            yield Source("vendor/google/protobuf/LICENSE", place)
            return
