"""What runs inside vLLM: a gate before its API, a control port, and the giving back of memory.

Staged on the engine's PYTHONPATH. vLLM loads `middleware` by its option ``--middleware`` and
`worker` by ``--worker-extension-cls``; that works from vLLM 0.24 on. vLLM and torch are imported
only where vLLM itself calls.
"""
