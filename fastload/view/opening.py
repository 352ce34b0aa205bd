"""open_subject(): the dataset of a page, from a folder or a URL."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastload.common.urls import is_remote, is_url, shown
from fastload.dataset.packed import PackedDataset
from fastload.errors import DatasetError
from fastload.store.manifest import Manifest, dataset_folder
from fastload.view.subject import PageSettings, Subject


def open_subject(
    dataset: str,
    settings: PageSettings,
    version: int | None = None,
    storage_options: Mapping[str, object] | None = None,
    timeout: float | None = None,
    name: str = "",
) -> Subject:
    """Opens a packed dataset for its page; `PackedDataset` has the arguments. One in a bucket is read through
    the usual cache.

    `name`: the path that the page shows, if it is another.

    Raises:
        DatasetError: it is no packed dataset, is damaged, or has no such version.
        RemoteError: the store does not answer.
    """
    far = is_remote(dataset) or Manifest.load(dataset_folder(dataset), version).is_foreign
    given: dict[str, Any] = {"storage_options": storage_options, "timeout": timeout} if far else {}
    opened = PackedDataset(dataset, version=version, **given)
    samples = None if opened.lists is None else opened
    if opened.lists is not None:
        opened = opened.lists.stored
    if not opened.opened.knows_sizes:
        opened.close()
        raise DatasetError(
            f"{shown(dataset)} does not say how large its images are, which lie in a store: attach "
            "them again with --check structure, or look at some by PackedDataset.show"
        )
    name = name or dataset
    return Subject(shown(name) if is_url(name) else name, opened, settings, samples)
