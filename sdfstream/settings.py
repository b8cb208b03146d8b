"""One YAML file composes every part's own configuration; every default is printable."""
