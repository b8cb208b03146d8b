"""Causes that learn from operators' labels.

Read `causes` first (which outcome is a label, what changes of a statement), then `kind` (when something is said, and
how sure), `labels` (what is remembered, within which bounds), `features`, `classifier` and `packed`.
"""
