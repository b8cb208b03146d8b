"""STAMP (RFC 8762, RFC 8972) as engines over batches, without sockets.

Read `sender` (`paths`, `exchanges`, `rows`), then `reflector` (`known_senders`: whom it answers, with `rates`;
`inbound`, `tlv_answer`). Octets: `packet` (and its HMAC), `tlv`. Shapes of batches: `datagrams`. `liveness` of paths,
at both ends.
"""
