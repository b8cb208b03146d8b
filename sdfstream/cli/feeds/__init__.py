"""Verbs that bring what others measured onto the bus."""
