"""Every topic into ClickHouse tables; SQL served while it runs."""
