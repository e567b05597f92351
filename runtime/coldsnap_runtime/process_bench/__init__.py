"""How fast process images come back: a synthetic tree or an artifact, by every rung, in turns."""
