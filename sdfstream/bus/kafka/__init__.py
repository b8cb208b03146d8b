"""The bus on Kafka. Start at `bus_io`."""
