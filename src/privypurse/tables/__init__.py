"""[RAW DATA] From a file to rows: the public description of columns, reading, and encoding that learns nothing."""

from privypurse.tables.encoder import TableEncoder
from privypurse.tables.schema import Category, ClassTarget, Number, NumberTarget, Schema, Source

__all__ = ["Category", "ClassTarget", "Number", "NumberTarget", "Schema", "Source", "TableEncoder"]
