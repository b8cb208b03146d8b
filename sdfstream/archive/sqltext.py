"""Names, strings and parameters as ClickHouse's SQL writes them. Pure."""

from __future__ import annotations


def quoted(name: str) -> str:
    """A name in backquotes."""
    return "`" + name.replace("\\", "\\\\").replace("`", "\\`") + "`"


def literal(text: str) -> str:
    """A string in single quotes."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def parameter(text: str) -> str:
    """The value of a query parameter of type String: escaped as in TSV."""
    for plain, escaped in (("\\", "\\\\"), ("\t", "\\t"), ("\n", "\\n"), ("\r", "\\r"), ("\0", "\\0")):
        text = text.replace(plain, escaped)
    return text
