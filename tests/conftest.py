"""Shared fixtures live in tests/fixtures, one file per outside part."""

<<<<<<< HEAD
pytest_plugins = ["tests.fixtures.lab"]
=======
pytest_plugins: list[str] = ["tests.fixtures.kafka"]
>>>>>>> bus
