"""What the user describes: frozen dataclasses in SI units, no computation."""
