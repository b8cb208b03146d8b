"""Shared fixtures live in tests/fixtures, one file per outside part."""

pytest_plugins = ["tests.fixtures.lab", "tests.fixtures.kafka", "tests.fixtures.engines"]
