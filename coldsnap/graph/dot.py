"""A plan's DAG for Graphviz."""

from __future__ import annotations

from coldsnap.graph.dag import StepGraph


def render_dot(graph: StepGraph, name: str = "plan") -> str:
    """A digraph; steps of one template use stand in one cluster."""
    lines = [
        f"digraph {_quoted(name)} {{",
        '  node [shape=box, style=rounded, fontname="sans-serif"];',
    ]
    for number, use in enumerate(dict.fromkeys(node.use for node in graph.nodes)):
        indent = "  "
        if use is not None:
            lines.append(f"  subgraph cluster_{number} {{")
            lines.append(f"    label={_quoted(use)};")
            indent = "    "
        for node in graph.nodes:
            if node.use == use:
                label = _quoted(f"{node.id}\n{node.type}")
                lines.append(f"{indent}{_quoted(node.id)} [label={label}];")
        if use is not None:
            lines.append("  }")
    for node in graph.nodes:
        lines.extend(f"  {_quoted(need)} -> {_quoted(node.id)};" for need in graph.reduced[node.id])
    lines.append("}")
    return "\n".join(lines)


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'
