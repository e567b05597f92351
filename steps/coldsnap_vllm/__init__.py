from pathlib import Path

from coldsnap.sdk import Pack

PACK = Pack("vllm", {}, Path(__file__).parent)
