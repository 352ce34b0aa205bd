"""Hugging Face's datasets that are streamed: the files that they read."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any, NamedTuple

from fastload.errors import ArgumentError

_GIVE = "give the dataset as load_dataset(..., streaming=True) returns it, or the URLs of its files"


_BUILDERS = (
    ("datasets.packaged_modules.parquet.parquet", "Parquet"),
    ("datasets.packaged_modules.arrow.arrow", "Arrow"),
)


class StreamedFiles(NamedTuple):
    """URLs of files, and the token of their repository; None: the user's own, if any."""

    urls: list[str]
    token: str | None


def streamed_files(source: object) -> StreamedFiles | None:
    """The Parquet or Arrow files of an `IterableDataset`, in order; None: it is none.

    Raises:
        ArgumentError: something was done to its samples, or their order, or they are of other files.
    """
    datasets: Any = sys.modules.get("datasets")  # whoever has made one has imported it
    if datasets is None or not isinstance(source, datasets.IterableDataset):
        return None
    stream: Any = source
    iterable, title = stream._ex_iterable, f"the {type(source).__name__}"
    builder: Any = getattr(getattr(iterable, "generate_tables_fn", None), "__self__", None)
    if type(iterable) is not datasets.iterable_dataset.ArrowExamplesIterable:
        raise ArgumentError(
            f"{title} has a step ({type(iterable).__name__.removesuffix('Iterable')}) that fastload does not "
            f"take over, such as map, filter or shuffle: {_GIVE}"
        )
    if not any(isinstance(builder, getattr(import_module(module), name)) for module, name in _BUILDERS):
        raise ArgumentError(f"{title} reads no Parquet or Arrow files: {_GIVE}")
    config, groups = builder.config, iterable.kwargs.get("row_groups_list") or []
    changed = {
        "with_format": stream._formatting is not None,
        "split_dataset_by_node (FastLoader does it)": stream._distributed is not None,
        "cast": stream.features != builder.info.features,
        "columns or filters": any(getattr(config, name, None) for name in ("columns", "filters")),
        "reshard": any(group is not None for group in groups),
    }
    for step, is_changed in changed.items():
        if is_changed:
            raise ArgumentError(f"{title} was made with {step}: {_GIVE}")
    tokens = [token for token in stream._token_per_repo_id.values() if isinstance(token, str)]
    return StreamedFiles([str(file) for file in iterable.kwargs["files"]], tokens[0] if tokens else None)
