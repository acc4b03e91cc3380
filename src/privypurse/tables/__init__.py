"""[RAW DATA] Schemas of tables, reading of files, and encoding that learns nothing."""
