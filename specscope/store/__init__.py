"""The store: one client over ClickHouse or the embedded engine, its tables, and their rollups."""
