"""Reproductions of the papers, audits of the library, and study data."""

__version__ = "0.1.0"
