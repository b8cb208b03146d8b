"""The archive's upkeep, beside the writer: what is finished, copied and dropped as time goes by.

Read `passes_io` (one pass after another), then `rollups` and `rollups_io` (minutes and hours), `around_findings` (raw
rows that stay longer), `expiry_io` (rows that go by age).
"""
