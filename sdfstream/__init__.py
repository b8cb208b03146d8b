"""The open software-driven fabric for AI clusters; see ARCHITECTURE.md for the path of a sample."""

__version__ = "0.2.0"
