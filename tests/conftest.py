"""Shared fixtures live in tests/fixtures, one file per outside part."""

<<<<<<< HEAD
<<<<<<< HEAD
pytest_plugins = ["tests.fixtures.lab"]
=======
pytest_plugins: list[str] = ["tests.fixtures.kafka"]
>>>>>>> bus
=======
pytest_plugins: list[str] = ["tests.fixtures.engines"]
>>>>>>> archive
