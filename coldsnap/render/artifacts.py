"""Artifacts of a store: the list, what is in one, and how two differ."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from coldsnap.artifact.drivers import host_feature
from coldsnap.render.artifact_memory import areas_of, memory_text
from coldsnap.render.artifact_rungs import rungs_text
from coldsnap.render.columns import Cell, table
from coldsnap.render.palette import PLAIN, Palette, clean
from coldsnap.render.quantities import duration, plural, short_digest, size

if TYPE_CHECKING:
    from coldsnap.artifact.descriptor import Descriptor
    from coldsnap.artifact.oci.entries import Entry
    from coldsnap.artifact.oci.read import Artifact

_BAR: Final = 24
_LISTED: Final = 8
"""Files that a branch shows before it says how many more there are."""


def list_text(
    entries: Sequence[tuple[Entry, int | None]],
    palette: Palette = PLAIN,
    payloads: Mapping[str, str] | None = None,
) -> str:
    """Newest first, each with its bytes (None when it is damaged).

    `payloads`: by manifest, how a payload is that cannot be used, such as ``missing``.
    """
    states = payloads or {}
    if not entries:
        return "No artifacts. Make one: coldsnap plan apply PLAN"
    rows = [
        (
            short_digest(entry.manifest),
            entry.name,
            ", ".join(entry.tags),
            _size_cell(count, states.get(entry.manifest, "")),
            ", ".join(entry.units),
            entry.created.replace("T", " ").partition(".")[0].rstrip("Z"),
        )
        for entry, count in entries
    ]
    head = ("ARTIFACT", "NAME", "TAGS", "SIZE", "UNITS", "CREATED")
    return table(head, rows, palette, right=(3,))


def _size_cell(count: int | None, payload: str) -> str | Cell:
    if count is None:
        return Cell("damaged", "error")
    return Cell(f"payload {payload}, {size(count)}", "warn") if payload else size(count)


def inspect_text(
    artifact: Artifact, palette: Palette = PLAIN, *, sizes: bool = False, payload: str = ""
) -> str:
    """Identity, where it can be restored, bytes by kind; `sizes` adds files and processes.

    `payload`: how it is if it cannot be used, such as ``missing``.
    """
    made = artifact.descriptor
    parts = [f"{artifact.digest}  {size(artifact.bytes)}", _identity(artifact, palette)]
    parts.append("needs on a host\n" + _needs(made))
    parts.append(_content(artifact, palette))
    if payload:
        parts.append(
            palette.paint(
                f"  payload {payload}: restored from the model's files, or not at all", "warn"
            )
        )
    if ways := rungs_text(made.extensions.notes, palette):
        parts.append(ways)
    if sizes:
        parts.append(_tree(artifact, palette))
        if areas := areas_of(made.extensions.notes):
            parts.append(memory_text(areas, palette))
        elif made.extensions.processes:
            parts.append(_processes(made.extensions.processes, palette))
    left_out = [(n, c) for n, c in made.extensions.sizes.items() if "discard" in n and c]
    parts.extend(f"left out: {clean(n).replace('_', ' ')} {size(c)}" for n, c in left_out)
    return "\n\n".join(parts)


def _identity(artifact: Artifact, palette: Palette) -> str:
    made = artifact.descriptor
    rows: list[tuple[str, str]] = [
        ("tags", ", ".join(artifact.tags) or "-"),
        ("capture", made.capture_id),
        ("request", made.request_sha256),
        ("engine", made.launch.engine),
        ("model", f"{made.launch.model.id} {made.launch.model.revision}".strip()),
        ("driver", f"{made.snapshot_driver.id} ({made.snapshot_driver.capture_boundary})"),
        ("units", ", ".join(unit.id for unit in made.launch.units)),
    ]
    cold = made.extensions.cold_start_seconds
    if cold is not None:
        rows.append(("cold start", duration(float(cold))))
    return table((), [(Cell(name, "dim"), value) for name, value in rows], palette, indent="  ")


def _needs(made: Descriptor) -> str:
    lines = [f"  features {clean(', '.join(_features(made)))}"]
    for unit in made.compatibility.units:
        words = [f"  unit {unit.unit}: {unit.architecture}"]
        if made.extensions.cpu_flags:
            words.append(f"{plural(len(made.extensions.cpu_flags), 'CPU flag')}")
        if unit.nvidia_driver_min:
            words.append(f"NVIDIA driver >= {unit.nvidia_driver_min}")
        words.extend(f"{d.gpu_name} ({d.compute_capability})" for d in unit.devices)
        lines.append(clean(", ".join(words)))
    files = made.extensions.mapped_files
    if files:
        total = sum(file.bytes for file in files)
        lines.append(f"  {plural(len(files), 'mapped file')} unchanged ({size(total)})")
    return "\n".join(lines)


def _features(made: Descriptor) -> list[str]:
    """By the names of `coldsnap doctor`: the one that admits the driver, and what goes beyond it.

    Those of the driver's contract are not listed one by one: a template without devices needs
    nothing of CUDA, and what a GPU must be able to do is measured as the driver's feature.
    """
    driver = made.snapshot_driver
    has_devices = any(unit.devices for unit in made.compatibility.units)
    beyond = {feature.id for feature in made.requires.features} - set(driver.base_requirements)
    return [host_feature(driver.id, has_devices=has_devices), *sorted(beyond)]


def _by_role(artifact: Artifact) -> dict[str, list[tuple[str, int]]]:
    """Role -> files (path, bytes), the largest role first."""
    roles: dict[str, list[tuple[str, int]]] = {}
    for layer in artifact.manifest.files():
        roles.setdefault(layer.role, []).append((layer.path, layer.size))
    return dict(sorted(roles.items(), key=lambda item: -_total(item[1])))


def _total(files: Iterable[tuple[str, int]]) -> int:
    return sum(count for _, count in files)


def _content(artifact: Artifact, palette: Palette) -> str:
    roles = _by_role(artifact)
    largest = max((_total(files) for files in roles.values()), default=1) or 1
    rows = [
        (
            role,
            size(_total(files)),
            "█" * max(1, round(_total(files) / largest * _BAR)),
            plural(len(files), "file"),
        )
        for role, files in roles.items()
    ]
    return table((), rows, palette, right=(1,), indent="  ")


def _tree(artifact: Artifact, palette: Palette) -> str:
    lines = [palette.paint("files", "strong")]
    roles = _by_role(artifact)
    for number, (role, files) in enumerate(roles.items()):
        last = number == len(roles) - 1
        lines.append(f"{'└' if last else '├'}─ {clean(role)}  {size(_total(files))}")
        ordered = sorted(files, key=lambda file: -file[1])
        stem = "   " if last else "│  "
        for path, count in ordered[:_LISTED]:
            end = path == ordered[-1][0]
            lines.append(f"{stem}{'└' if end else '├'}─ {clean(path)}  {size(count)}")
        if len(ordered) > _LISTED:
            rest = ordered[_LISTED:]
            lines.append(f"{stem}└─ {plural(len(rest), 'more file')}  {size(_total(rest))}")
    return "\n".join(lines)


def _processes(processes: Sequence[Mapping[str, Any]], palette: Palette) -> str:
    kinds = list(dict.fromkeys(k for p in processes for k in _memory(p)))
    rows = [
        [
            str(process.get("pid", "")),
            str(process.get("name") or process.get("comm") or ""),
            *(size(_memory(process).get(kind)) for kind in kinds),
        ]
        for process in processes
    ]
    head = ("PID", "PROCESS", *(kind.upper() for kind in kinds))
    return table(head, rows, palette, right=range(2, len(head)))


def _memory(process: Mapping[str, Any]) -> dict[str, int]:
    """Bytes by kind, whatever kinds the runtime told."""
    nested = process.get("memory")
    source = nested if isinstance(nested, Mapping) else process
    return {
        str(name).removesuffix("_bytes"): value
        for name, value in source.items()
        if isinstance(value, int) and (nested is source or str(name).endswith("_bytes"))
    }
