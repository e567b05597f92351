"""The DAG of a plan: order, slices, pictures.

`dag.StepGraph.of(plan)`, `slices.select|sliced`, `pictures.render(graph, format)`.
"""
