"""Estimates and findings against known truth."""
