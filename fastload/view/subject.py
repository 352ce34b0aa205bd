"""Subject: the packed dataset that a page shows, open for all threads of the server, with the settings of
the page."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Generic, TypeVar

import numpy as np
import numpy.typing as npt

from fastload.common.positions import evenly
from fastload.dataset.packed import PackedDataset
from fastload.errors import ArgumentError
from fastload.store.labels import class_name, label_field
from fastload.store.lists import spans

Value = TypeVar("Value")
BAD_MOST = 1000
"""Bad samples that are listed."""


@dataclass(frozen=True)
class PageSettings:
    """Settings of a page, from the command line.

    Attributes:
        where: condition of the first page; "": none.
        transform: transform of the draws.
        transform_text: the same in words.
        seed, epoch: seed and first epoch of the draws that are shown first.
    """

    where: str = ""
    transform: object = None
    transform_text: str = ""
    seed: int = 0
    epoch: int = 0


@dataclass
class Subject:
    """A dataset as its page reads it. Any thread may read.

    Attributes:
        path: the folder or the URL, without secrets.
        dataset: the dataset, without a transform and with all its fields.
        settings: settings of the page.
        samples: the dataset whose samples' images `dataset` has; None: a sample is an image.
        bad: sentences of the samples that could not be shown, by index; at most BAD_MOST. Written under
            `lock`.
    """

    path: str
    dataset: PackedDataset
    settings: PageSettings
    samples: PackedDataset | None = None
    bad: dict[int, str] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self.dataset.opened.decoder  # noqa: B018 -- made here, and not by several threads at once

    @cached_property
    def whole(self) -> Subject:
        """The samples as a page reads them, where a sample is no image."""
        return self if self.samples is None else Subject(self.path, self.samples, self.settings)

    @cached_property
    def _spans(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        return spans(self.whole.dataset.opened.reader, np.arange(len(self.whole.dataset)))

    def images(self, samples: Sequence[int]) -> Any:
        """The images of some samples in order, int64 (I,)."""
        return self.whole.dataset.listed(np.asarray(samples, np.int64))[0].astype(np.int64)

    def place(self, image: int) -> tuple[int, int]:
        """The sample that an image is of, and its number in it. Raises ArgumentError: it is of none."""
        first, count = self._spans
        sample = int(np.searchsorted(first, image, "right")) - 1
        number = image - int(first[sample])
        if sample < 0 or number >= count[sample]:
            raise ArgumentError(f"image {image} is of no sample of this version")
        return sample, number

    def close(self) -> None:
        """Closes the dataset."""
        self.whole.dataset.close()

    @property
    def label(self) -> str | None:
        """Name of the field with the class of a sample; None: samples have no class."""
        found = label_field(self.dataset.opened.reader.schema, self.dataset.fields)
        return None if found is None else found.name

    def label_text(self, label: int) -> str:
        """The class of a label, or its number."""
        return class_name(self.dataset.opened.reader.manifest.classes, label)

    def meet(self, index: int, error: Exception) -> str:
        """Notes a bad sample; returns the sentence."""
        sentence = str(error)
        with self.lock:
            if len(self.bad) < BAD_MOST:
                self.bad[index] = sentence
        return sentence


class Kept(Generic[Value]):
    """The values that were made last, by key. Any thread may ask; two threads may make the same value.

    Args:
        most: number of values that are kept.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._values: OrderedDict[Hashable, Value] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: Hashable, make: Callable[[], Value]) -> Value:
        """The value of a key, made if it is not kept."""
        with self._lock:
            if key in self._values:
                self._values.move_to_end(key)
                return self._values[key]
        value = make()
        with self._lock:
            self._values[key] = value
            while len(self._values) > self._most:
                self._values.popitem(last=False)
        return value


def spread(count: int, most: int) -> Sequence[int]:
    """At most `most` positions of `count`, evenly spaced, or all."""
    return range(count) if count <= most else evenly(count, most)
