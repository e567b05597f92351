"""A finished run: its figures, as text for the terminal and as one HTML page."""
