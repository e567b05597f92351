"""A plan's DAG for a pull request: Mermaid, which code hosts draw."""

from __future__ import annotations

from coldsnap.graph.dag import StepGraph

_ESCAPES = {"&": "#amp;", '"': "#quot;", "<": "#lt;", ">": "#gt;", "`": "#96;", "|": "#124;"}


def render_mermaid(graph: StepGraph) -> str:
    """A flowchart; steps of one template use stand in one box."""
    names = {node.id: f"s{index}" for index, node in enumerate(graph.nodes)}
    lines = ["flowchart TD"]
    for use in dict.fromkeys(node.use for node in graph.nodes):
        members = [node for node in graph.nodes if node.use == use]
        indent = "  "
        if use is not None:
            lines.append(f'  subgraph u_{names[members[0].id]}["{_text(use)}"]')
            indent = "    "
        for node in members:
            label = node.id.removeprefix(f"{use}.") if use else node.id
            lines.append(f'{indent}{names[node.id]}["{_text(label)}<br/>{_text(node.type)}"]')
        if use is not None:
            lines.append("  end")
    for node in graph.nodes:
        lines.extend(f"  {names[need]} --> {names[node.id]}" for need in graph.reduced[node.id])
    return "\n".join(lines)


def _text(text: str) -> str:
    return "".join(_ESCAPES.get(char, char) for char in text)
