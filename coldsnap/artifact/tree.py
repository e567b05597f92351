"""A content-addressed file tree: the runtime pack, as it is built here and checked on a target.

``pack.json`` in its root lists every other file; the tree's digest is that of the list. Files
that are not listed, links and devices make a tree invalid.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

from coldsnap.artifact import canonical
from coldsnap.artifact.decode import Record, decode, encode, parse
from coldsnap.artifact.errors import ColdSnapError
from coldsnap.artifact.files import read_regular, sha256_file
from coldsnap.artifact.rules import Bytes, Count, Digest, Id, Line, RelativePath

LISTING = "pack.json"
MAX_LISTING_BYTES = 16 << 20


@dataclass(frozen=True)
class TreeFile(Record):
    path: RelativePath
    bytes: Bytes
    sha256: Digest
    executable: bool = False


@dataclass(frozen=True)
class Listing(Record):
    """``pack.json``."""

    files: Annotated[tuple[TreeFile, ...], Count(1, 100_000)]
    """Sorted by path."""
    facts: Mapping[Id, Line] = field(default_factory=dict)
    """For people: versions and origins; not part of the digest."""
    abi: Literal[1] = 1
    format: Literal[1] = 1
    kind: Literal["coldsnap-runtime-pack"] = "coldsnap-runtime-pack"

    def problems(self) -> Iterator[tuple[str, str]]:
        paths = [file.path for file in self.files]
        if paths != sorted(set(paths)):
            yield "/files", "must be sorted by path, each once"

    @property
    def digest(self) -> str:
        """Identity of the tree."""
        return canonical.digest(encode(self.files))


@dataclass(frozen=True)
class Tree:
    folder: Path
    listing: Listing
    digest: str

    @property
    def bytes(self) -> int:
        return sum(file.bytes for file in self.listing.files)

    def to_json(self) -> dict[str, Any]:
        return {
            "digest": self.digest,
            "files": len(self.listing.files),
            "bytes": self.bytes,
            "facts": dict(self.listing.facts),
        }


def read_listing(folder: str | os.PathLike[str]) -> Listing:
    """The listing of a tree.

    Raises:
        ColdSnapError: ``pack.listing-invalid``, ``file.missing``.
    """
    path = Path(folder) / LISTING
    data = read_regular(path, MAX_LISTING_BYTES)
    value = parse(data, limit=MAX_LISTING_BYTES, what=str(path), code="pack.listing-invalid")
    return decode_listing(value, str(path))


def decode_listing(value: Any, what: str) -> Listing:
    """The checked listing in a parsed ``pack.json``.

    Raises:
        ColdSnapError: ``pack.listing-invalid``.
    """
    return decode(Listing, value, what=what, code="pack.listing-invalid")


def verify_tree(folder: str | os.PathLike[str], expect: str | None = None) -> Tree:
    """Hash every file of a tree against its listing.

    Args:
        folder: its root.
        expect: digest wanted, with or without ``sha256:``.

    Raises:
        ColdSnapError: ``pack.differs`` naming the files, ``pack.wrong``, ``file.missing``,
            ``pack.listing-invalid``.
    """
    root = Path(folder)
    listing = read_listing(root)
    digest = listing.digest
    if expect is not None and digest.removeprefix("sha256:") != expect.removeprefix("sha256:"):
        raise ColdSnapError("pack.wrong", f"{root} is runtime pack {digest}, not {expect}")
    known = {file.path: file for file in listing.files}
    problems = [f"{path}: not part of the pack" for path in _extra(root, known)]
    wrong = ((file.path, _wrong(root / file.path, file)) for file in listing.files)
    problems += [f"{path}: {reason}" for path, reason in wrong if reason]
    if problems:
        raise ColdSnapError(
            "pack.differs",
            f"runtime pack {root} is not what its digest says",
            details=tuple(problems[:20]),
            remedy="remove the folder; it is staged again by the next run",
        )
    return Tree(root, listing, digest)


def _wrong(path: Path, file: TreeFile) -> str:
    try:
        found = path.lstat()
        executable = bool(found.st_mode & stat.S_IXUSR)
        if not stat.S_ISREG(found.st_mode):
            reason = "not a regular file"
        elif found.st_size != file.bytes:
            reason = f"{found.st_size} bytes, expected {file.bytes}"
        elif executable != file.executable:
            reason = "executable" if executable else "not executable"
        else:
            reason = "" if sha256_file(path) == file.sha256 else "damaged"
    except FileNotFoundError:
        reason = "missing"
    except OSError as error:
        reason = str(error)
    return reason


def _extra(root: Path, known: Mapping[str, TreeFile]) -> Iterator[str]:
    """Files outside the listing; byte code that an interpreter left is none of the pack."""
    for folder, folders, files in os.walk(root):
        folders[:] = sorted(name for name in folders if name != "__pycache__")
        for name in sorted(files):
            path = os.path.relpath(Path(folder) / name, root)
            if path not in known and path != LISTING:
                yield path
