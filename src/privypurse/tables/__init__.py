"""[RAW DATA] Schemas of tables, reading of files, and encoding that learns nothing."""

from privypurse.tables.schema import Schema

__all__ = ["Schema"]
