"""The store: a client for ClickHouse or the embedded engine, its tables and their rollups."""
