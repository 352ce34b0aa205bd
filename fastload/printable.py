"""Text that came out of a file, made fit for a terminal."""

from __future__ import annotations


def printable(text: object, keep: str = "") -> str:
    r"""Text with every character that is no plain printable one written as an escape: ``\x1b``, ``\u202e``, ``\udcff``.

    Names of classes, files and fields can be anything; written raw, a terminal obeys the control sequences among them,
    direction marks make a name look like another, and lone surrogates (bytes of a path that are no UTF-8) cannot be written
    at all.

    Args:
        text: the text, or an object whose `str` is meant.
        keep: characters that stay, such as the line break of a text of several lines.
    """
    text = str(text)
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in keep else c.encode("unicode_escape").decode("ascii") for c in text)


def cell(text: object) -> str:
    """Text fit for a table that rich draws: `printable`, and nothing in it taken for markup."""
    from rich.markup import escape

    return escape(printable(text))
