"""A fuzzer of the decoders and the stages: any messages in, no exception, bounded memory and time.

Read in this order: `values` (odd scalars and names), `events` and `batches` (bodies that fit a topic's schema, drawn
from the schema itself, so that a new topic is fuzzed without being listed), `mutate` (damage), `traffic` (wire
messages), `decoders` (one target per decoder), `chain` (all stages in memory, and what is checked), `broker` (all
processes on a real broker). ``python -m tests.fuzz --help``; finds live on in ``cases/``.
"""
