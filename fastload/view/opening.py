"""open_subject(): the dataset of a page, from a folder or a URL."""

from __future__ import annotations

from collections.abc import Mapping

from fastload.common.urls import is_remote, is_url, shown
from fastload.dataset.packed import PackedDataset
from fastload.errors import DatasetError
from fastload.store.lists import images_path
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
    if is_remote(dataset) or Manifest.load(dataset_folder(dataset), version).is_foreign:
        opened = PackedDataset(dataset, version=version, storage_options=storage_options, timeout=timeout)
    else:
        opened = PackedDataset(dataset, version=version)
    if opened.lists is not None:
        opened.close()
        raise DatasetError(
            f"{shown(dataset)} has any number of images a sample: "
            f"`fastload view {shown(images_path(dataset))}` shows them"
        )
    if not opened.opened.knows_sizes:
        opened.close()
        raise DatasetError(
            f"{shown(dataset)} does not say how large its images are, which lie in a store: attach "
            "them again with --check structure, or look at some by PackedDataset.show"
        )
    name = name or dataset
    return Subject(shown(name) if is_url(name) else name, opened, settings)
