"""Text: text of several lines, which an interpreter and a notebook show as lines."""

from __future__ import annotations

import html


class Text(str):
    """A str of several lines, whose repr is the text itself: at a prompt, or last in a notebook's cell, it
    shows as print() would."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(str(self))}</pre>"


class ShownAsText:
    """Base of classes whose objects a notebook shows as the lines of their repr."""

    __slots__ = ()

    def _repr_html_(self) -> str:
        return Text(repr(self))._repr_html_()
