"""The report of a run: one HTML file with its guarantee, its cost and its measurements."""

__all__ = []
