"""Notice: a count of one kind, with examples, of files that a source left out, and of images read with
less than they hold."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

EXAMPLES = 20
"""Limit on the names kept for each kind; all are counted."""

ORIENTATION = "orientation"
ALPHA = "alpha"
FRAMES = "frames"
COLOUR = "colour"
DEEP = "deep"
LINKS = "links"
BESIDE = "beside"
FILES = "files"
MEMBERS = "members"
UNLISTED = "unlisted"
NO_LABEL = "no label"
INDEX = "index column"
OBJECTS = "objects"
SPACES = "spaces"
READ_WHOLE = "read whole"

NOT_TURNED = (
    "images with an EXIF orientation, which was not applied; --exif apply is not for this source, which "
    "has annotations"
)
"""Text of `ORIENTATION` for sources whose annotations would not turn with their images."""
TEXTS = {
    ORIENTATION: "images with an EXIF orientation, which was not applied; --exif apply turns them upright",
    ALPHA: "images packed without their transparency, as ImageFolder reads them",
    FRAMES: "images of several frames or pages, packed as their first",
    COLOUR: "images in CMYK, YCbCr or Lab made RGB",
    DEEP: (
        "images of more than 8 bits a channel left out; convert them to 8 bits, which is all that is stored"
    ),
    LINKS: "links to nothing left out",
    MEMBERS: "members of the tars left out, which belong to no sample",
    UNLISTED: (
        "pictures left out that no line of fields.jsonl names; without fastload.json the class folders "
        "are packed as they are"
    ),
    BESIDE: (
        "pictures beside the class folders left out; move them into one, or name them in a .csv of path,label"
    ),
    FILES: "other files left out",
    INDEX: "unnamed first column of a table left out, as pandas' index",
    OBJECTS: (
        "columns of objects stored as JSON: they do not say what their boxes are; --box-format xywh (as "
        "in COCO), xyxy, ... says it"
    ),
    SPACES: (
        "class names that begin or end with a space, which a table's cell keeps; take it out of the "
        "table if it is none of theirs"
    ),
    READ_WHOLE: "objects read as a whole, which took less time than a request for each of their images",
    NO_LABEL: "columns of the table, none of which is taken for the label; --label-column names it",
}
"""Text of each kind, printed after its count. Pictures of a type that is not packed have their extension
as kind."""


@dataclass(frozen=True, slots=True)
class Notice:
    """A notice of one kind.

    Attributes:
        kind: a name for programs: "orientation", "alpha", ".gif", ...
        text: the same in words, printed after the count.
        count: notices of the kind.
        examples: names of the first ones, at most `EXAMPLES`.
    """

    kind: str
    text: str
    count: int
    examples: tuple[str, ...]


@dataclass(slots=True)
class Notices:
    """Notices of a running pack, counted by kind."""

    _found: dict[str, tuple[str, int, list[str]]] = field(default_factory=dict)

    def add(self, kind: str, name: str, text: str = "") -> None:
        """Counts one notice of a kind; `text` is for kinds that are not in `TEXTS`."""
        said, count, examples = self._found.get(kind) or (text or TEXTS[kind], 0, [])
        if len(examples) < EXAMPLES:
            examples.append(name)
        self._found[kind] = (said, count + 1, examples)

    def merge(self, later: Notices) -> None:
        """Adds the notices of samples that come after those counted here."""
        for kind, (text, count, examples) in later._found.items():
            said, so_far, names = self._found.get(kind) or (text, 0, [])
            self._found[kind] = (said, so_far + count, [*names, *examples][:EXAMPLES])

    def all(self) -> tuple[Notice, ...]:
        """The notices of all kinds, in the order of their first occurrence."""
        return tuple(
            Notice(kind, text, count, tuple(examples))
            for kind, (text, count, examples) in self._found.items()
        )

    def state(self) -> list[dict[str, Any]]:
        """All counts and examples, as JSON values."""
        return to_json(self.all())

    @classmethod
    def of(cls, state: object) -> Notices:
        """Notices that continue from the `state` in a journal or manifest; invalid entries are ignored."""
        found = cls()
        for each in state if isinstance(state, list) else ():
            if isinstance(each, dict):
                kind, text, count, examples = (
                    each.get(name) for name in ("kind", "text", "count", "examples")
                )
                if (
                    isinstance(kind, str)
                    and isinstance(text, str)
                    and isinstance(count, int)
                    and isinstance(examples, list)
                ):
                    found._found[kind] = (text, count, [str(name) for name in examples])
        return found


def to_json(notices: Iterable[Notice]) -> list[dict[str, Any]]:
    """Notices in the form that a manifest's summary stores."""
    return [{"kind": n.kind, "text": n.text, "count": n.count, "examples": list(n.examples)} for n in notices]
