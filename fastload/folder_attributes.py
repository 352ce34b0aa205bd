"""FolderAttributes: what torchvision's ImageFolder has beside its samples, as attributes of a packed dataset."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy.typing as npt

from fastload.errors import Computed
from fastload.opened import OpenedDataset

_NAMES = ("path", "name", "file", "filename")


class FolderAttributes:
    """Classes, targets and samples of a dataset that has its values by field."""

    path: Any

    @property
    @abstractmethod
    def opened(self) -> OpenedDataset:
        """This process's open reader."""

    @property
    @abstractmethod
    def fields(self) -> tuple[str, ...]:
        """Names of the delivered fields."""

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def column(self, name: str) -> npt.NDArray[Any]:
        """All values of a field of fixed size."""

    @abstractmethod
    def stored_values(self, index: int, names: Sequence[str] | None = None) -> dict[str, Any]:
        """The values of a sample's fields that lie in its record, by name."""

    @property
    def classes(self) -> list[str]:
        """Class names by label, as the source had them; empty where it had none."""
        return list(self.opened.reader.manifest.classes or [])

    @property
    def class_to_idx(self) -> dict[str, int]:
        """Label by class name."""
        return {name: i for i, name in enumerate(self.classes)}

    @Computed
    def targets(self) -> list[int]:
        """The label of every sample, as torchvision's folders have them: the values of the one int field.

        Raises:
            AttributeError: there is no int field, or more than one.
        """
        ints = [name for name in self.fields if self.opened.kinds[name] == "int"]
        if len(ints) != 1:
            raise AttributeError(f"{self.path} has no targets: they are the values of one int field, and it delivers {len(ints)}")
        labels: list[int] = self.column(ints[0]).tolist()
        return labels

    @Computed
    def samples(self) -> list[tuple[str, int]]:
        """(name, label) of every sample, as torchvision's folders have them, where names were packed. Reads every record.

        Raises:
            AttributeError: there are no targets, or none of the text fields `path`, `name`, `file` and `filename`.
        """
        named = next((name for name in _NAMES if self.opened.kinds.get(name) == "text"), None)
        if named is None:
            raise AttributeError(f"{self.path} has no samples: no names were packed, as a text field {' or '.join(map(repr, _NAMES))}")
        targets = self.targets
        names = [self.stored_values(i, [named])[named] for i in range(len(self))]
        return list(zip(names, targets, strict=True))

    @Computed
    def imgs(self) -> list[tuple[str, int]]:
        """The same as samples."""
        return self.samples
