"""[RAW DATA] Schemas of tables, reading of files, and encoding that learns nothing."""

from privypurse.tables.encoder import TableEncoder
from privypurse.tables.schema import Category, ClassTarget, Number, NumberTarget, Schema, Source

__all__ = ["Category", "ClassTarget", "Number", "NumberTarget", "Schema", "Source", "TableEncoder"]
