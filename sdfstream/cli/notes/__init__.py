"""Verbs by which operators say something of findings: `silence` (who is told), `label` (what it turned out to be)."""
