"""Pages: answers to the page's requests, by path. The server and the static report share them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from fastload.errors import ArgumentError
from fastload.view.checking import bad_document, check_samples
from fastload.view.draws import DEFAULT_TEXT, EPOCHS_MOST, SampleDraws
from fastload.view.facts import Facts
from fastload.view.layers import colours, is_marked
from fastload.view.listing import ROWS_MOST, Listing
from fastload.view.pictures import SIDES, Pictures
from fastload.view.sample import layers_document, sample_document
from fastload.view.shown import document
from fastload.view.subject import Subject

JSON = "application/json"
PNG = "image/png"
Query = Mapping[str, str]


@cache
def page_file(name: str) -> bytes:
    """A file of the page: page.html, page.css, page.js or icon.svg."""
    return (files("fastload.view") / "page" / name).read_bytes()


@dataclass(frozen=True)
class Answer:
    """An answer to a request: its bytes and their type."""

    content: bytes
    kind: str


class Pages:
    """The answers of a dataset's page. Any thread may call.

    Raises:
        TransformError: the transform of the draws cannot be planned.
    """

    def __init__(self, subject: Subject) -> None:
        self._subject = subject
        self.listing, self.pictures = Listing(subject), Pictures(subject)
        self.facts, self.draws = Facts(subject.whole), SampleDraws(subject)
        self._documents: Mapping[str, Callable[[Query], Any]] = {
            "dataset": lambda query: self.dataset(),
            "rows": lambda query: self.listing.rows(
                query.get("where", ""), _int(query, "start", 0), _int(query, "count", ROWS_MOST)
            ),
            "facts": lambda query: self.facts.document(),
            "bad": lambda query: bad_document(subject),
            "check": lambda query: check_samples(subject, _int(query, "start", 0)),
        }
        self._of_sample: Mapping[str, Callable[[int, Query], Answer]] = {
            "sample": lambda index, query: _json(self._sample(index, query)),
            "draws": lambda index, query: _json(
                self.draws.document(index, *_draw(query), _int(query, "count", 8))
            ),
            "picture": lambda index, query: Answer(
                self.pictures.image(index, _int(query, "side", SIDES[-1]), query.get("field", "")), PNG
            ),
            "layers": lambda index, query: _json(
                layers_document(subject, index, _int(query, "side", SIDES[-1]))
            ),
            "layer": lambda index, query: Answer(
                self.pictures.layer(index, query.get("field", ""), _int(query, "side", SIDES[-1])), PNG
            ),
            "draw": lambda index, query: Answer(
                self.draws.picture(index, *_draw(query), _int(query, "view", 0)), PNG
            ),
            "draw-layer": lambda index, query: Answer(
                self.draws.layer(index, *_draw(query), query.get("field", "")), PNG
            ),
        }

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the documents of the whole dataset."""
        return tuple(self._documents)

    @property
    def sample_names(self) -> tuple[str, ...]:
        """Names of the answers about one sample."""
        return tuple(self._of_sample)

    def about(self, name: str, query: Query) -> Answer:
        """The document of the whole dataset of a name. Raises FastloadError."""
        return _json(self._documents[name](query))

    def of_sample(self, name: str, index: int, query: Query) -> Answer:
        """The answer about sample `index`. Raises FastloadError; ArgumentError if there is no such sample."""
        if not 0 <= index < len(self._subject.dataset):
            raise ArgumentError(f"there is no sample {index}; the dataset has {len(self._subject.dataset):,}")
        return self._of_sample[name](index, query)

    def dataset(self) -> dict[str, Any]:
        """The dataset's description and the settings of its page."""
        subject = self._subject
        dataset, settings = subject.dataset, subject.settings
        reader = dataset.opened.reader
        return {
            "path": subject.path if subject.samples is None else f"{subject.path}: all images of samples",
            "samples": len(dataset),
            "version": dataset.version,
            "bytes": reader.manifest.bytes,
            "shards": len(reader.manifest.shards),
            "fields": [
                [field.name, field.describe()] for field in subject.whole.dataset.opened.reader.schema
            ],
            "label": subject.label,
            "marked": any(map(is_marked, reader.schema)),
            "where": settings.where,
            "example": _example(subject),
            "transform": settings.transform_text or DEFAULT_TEXT,
            "seed": settings.seed,
            "epoch": settings.epoch,
            "epochs_most": EPOCHS_MOST,
            "sides": list(SIDES),
            "colours": colours(),
        }

    def _sample(self, index: int, query: Query) -> dict[str, Any]:
        found = sample_document(self._subject, index)
        found["position"], found["before"], found["after"] = self.listing.neighbours(
            query.get("where", ""), index
        )
        return found


def _example(subject: Subject) -> str:
    """A condition over columns that the dataset has, as an example for the search."""
    if (lists := subject.whole.dataset.opened.reader.schema.images) is not None:
        return f"{lists.name}_count > 1"
    numbers = [
        field.name
        for field in subject.dataset.opened.reader.schema
        if field.is_column and not field.handler.is_array
    ]
    name = subject.label or next(iter(numbers), "")
    return f"{name} = 3 and width > 400" if name.isidentifier() else "width > 400"


def _json(value: object) -> Answer:
    return Answer(document(value), JSON)


def _draw(query: Query) -> tuple[int, int]:
    return _int(query, "seed", 0), _int(query, "epoch", 0)


def _int(query: Query, name: str, default: int) -> int:
    """A whole number of a query. Raises ArgumentError if it is none."""
    text = query.get(name, "")
    if not text:
        return default
    if not (text.isascii() and text.removeprefix("-").isdigit()) or len(text) > 20:
        raise ArgumentError(f"{name}={text[:40]!r} is no whole number")
    return int(text)
