"""STAMP (RFC 8762, RFC 8972) as engines over batches, without sockets. Start at `sender`."""
