"""What runs inside vLLM: a control port to hold still and serve on, and the giving back of KV.

Staged with its entry points on the engine's PYTHONPATH; vLLM finds it as a plugin named
``coldsnap`` (VLLM_PLUGINS=coldsnap). It imports vLLM and the standard library only, and vLLM
only where vLLM itself calls it.
"""
