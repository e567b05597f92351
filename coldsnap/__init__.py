"""ColdSnap: capture initialised LLM inference engines, bring them back in seconds."""

__version__ = "0.1.0"
