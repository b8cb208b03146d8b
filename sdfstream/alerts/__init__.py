"""Findings as alerts of an Alertmanager: which alert a finding is, and what is due to be pushed when.

Read `alert.py`, then `ledger.py`. Pushed by ``serve/alerts_io.py``; what is set is in `config.py`.
"""
