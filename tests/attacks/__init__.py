"""What an attacker tried, row by row of the threat model; each of these succeeded once."""
