"""A fabric of this machine, broken and found: what ``sdfstream demo`` runs."""
