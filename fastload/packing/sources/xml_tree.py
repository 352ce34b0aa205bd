"""Small XML files from anywhere, parsed without document types: they cannot define entities, nor name other files."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from xml.parsers import expat

from fastload.common.files import read_regular
from fastload.errors import PackError

XML_BYTES = 16 << 20
"""Limit on a file: an annotation of thousands of objects has one megabyte."""
_DEPTH = 100


@dataclass(slots=True)
class Element:
    """An element: its tag, its own text, and the elements in it."""

    tag: str
    text: str = ""
    inner: list[Element] = field(default_factory=list)

    def all(self, tag: str) -> list[Element]:
        """The elements of a tag right in this one."""
        return [each for each in self.inner if each.tag == tag]

    def value(self, *tags: str) -> str:
        """The text at a path of tags; "" if it is not there."""
        at: Element | None = self
        for tag in tags:
            at = next(iter(at.all(tag)), None) if at is not None else None
        return at.text.strip() if at is not None else ""


def read_xml(path: str) -> Element:
    """The outermost element of a file.

    Raises:
        PackError: the file is no XML, has a document type, or is nested deeper than `_DEPTH`.
        OSError: it cannot be read, or is larger than `XML_BYTES`.
    """
    data = read_regular(path, XML_BYTES)
    outer = Element("")
    open_now = [outer]

    def start(tag: str, _: dict[str, str]) -> None:
        if len(open_now) > _DEPTH:
            raise PackError(f"{path}: elements lie more than {_DEPTH} deep in each other")
        element = Element(tag)
        open_now[-1].inner.append(element)
        open_now.append(element)

    def text(characters: str) -> None:
        open_now[-1].text += characters

    def refuse(*_: object) -> None:
        raise PackError(f"{path}: it has a document type (<!DOCTYPE>), which annotations do not need; remove it")

    parser = expat.ParserCreate()
    parser.buffer_text = True
    parser.StartElementHandler = start
    parser.EndElementHandler = lambda _: open_now.pop()
    parser.CharacterDataHandler = text
    parser.StartDoctypeDeclHandler = refuse
    try:
        parser.Parse(data, True)
    except (expat.ExpatError, ValueError) as error:
        raise PackError(f"{os.fspath(path)}: no XML: {error}") from error
    return outer.inner[0]
