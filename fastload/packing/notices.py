"""What a pack tells about: things left out, and images of which less was kept than they hold. Counted by kind, with examples."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

EXAMPLES = 20
"""Names kept of each kind; all are counted."""

ORIENTATION = "orientation"
ALPHA = "alpha"
FRAMES = "frames"
COLOUR = "colour"
DEEP = "deep"
LINKS = "links"
BESIDE = "beside"
FILES = "files"
MEMBERS = "members"
NO_LABEL = "no label"
INDEX = "index column"

TEXTS = {
    ORIENTATION: "images with an EXIF orientation, which was not applied; --exif apply turns them upright",
    ALPHA: "images packed without their transparency, as ImageFolder reads them",
    FRAMES: "images of several frames or pages, packed as their first",
    COLOUR: "images in CMYK, YCbCr or Lab made RGB",
    DEEP: "images of more than 8 bits a channel left out; convert them to 8 bits, which is all that is stored",
    LINKS: "links to nothing left out",
    MEMBERS: "members of the tars left out, which belong to no sample",
    BESIDE: "pictures beside the class folders left out; move them into one, or name them in a .csv of path,label",
    FILES: "other files left out",
    INDEX: "unnamed first column of a table left out, as pandas' index",
    NO_LABEL: "columns of the table, none of which is taken for the label; --label-column names it",
}
"""What each kind says, to follow the count; the kind of pictures of another type is their extension."""


@dataclass(frozen=True, slots=True)
class Notice:
    """One kind of thing that a pack tells about.

    Attributes:
        kind: "orientation", "alpha", ".gif", ...: what programs may look for.
        text: the same in words, to follow the count.
        count: how many there are.
        examples: names of the first ones, at most `EXAMPLES`.
    """

    kind: str
    text: str
    count: int
    examples: tuple[str, ...]


@dataclass(slots=True)
class Notices:
    """Counts by kind while they grow."""

    _found: dict[str, tuple[str, int, list[str]]] = field(default_factory=dict)

    def add(self, kind: str, name: str, text: str = "") -> None:
        """Counts one thing of a kind; `text` is for kinds that `TEXTS` does not name."""
        said, count, examples = self._found.get(kind) or (text or TEXTS[kind], 0, [])
        if len(examples) < EXAMPLES:
            examples.append(name)
        self._found[kind] = (said, count + 1, examples)

    def all(self) -> tuple[Notice, ...]:
        """Every kind, in the order in which they were met."""
        return tuple(Notice(kind, text, count, tuple(examples)) for kind, (text, count, examples) in self._found.items())

    def state(self) -> list[dict[str, Any]]:
        """All of it, as JSON holds it."""
        return to_json(self.all())

    @classmethod
    def of(cls, state: object) -> Notices:
        """Continues from `state`, as a journal or a manifest has it; passes over what is none."""
        found = cls()
        for each in state if isinstance(state, list) else ():
            if isinstance(each, dict):
                kind, text, count, examples = (each.get(name) for name in ("kind", "text", "count", "examples"))
                if isinstance(kind, str) and isinstance(text, str) and isinstance(count, int) and isinstance(examples, list):
                    found._found[kind] = (text, count, [str(name) for name in examples])
        return found


def to_json(notices: Iterable[Notice]) -> list[dict[str, Any]]:
    """Notices as a manifest's summary holds them."""
    return [{"kind": n.kind, "text": n.text, "count": n.count, "examples": list(n.examples)} for n in notices]
