"""Shared fixtures live in tests/fixtures, one file per outside part."""

pytest_plugins: list[str] = ["tests.fixtures.engines"]
