"""read: samples in files of other programs as a Dataset, which native threads read as they lie."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from typing_extensions import Unpack

from fastload.common.files import expanded
from fastload.dataset.in_place.samples import Samples
from fastload.dataset.packed import PackedDataset
from fastload.errors import ArgumentError
from fastload.packing.attach_objects import LABEL_FIELD, attach_objects
from fastload.packing.keywords import settled
from fastload.packing.options import PackOptions, RunOptions
from fastload.remote.cache_folder import default_folder
from fastload.remote.writer import own_folder
from fastload.sources import LooseObjects, is_packed, open_source
from fastload.sources.foreign import each_of, has_urls
from fastload.sources.options import SourceKeywords, SourceOptions
from fastload.sources.protocol import IMAGE_FIELD
from fastload.sources.streamed import streamed_files
from fastload.store.foreign_writer import OtherObjectsError
from fastload.store.labels import LABEL
from fastload.store.progress import LockedError


def read(
    source: object,
    *,
    transform: Callable[[Any], Any] | Sequence[Any] | None = None,
    fields: Sequence[str] | None = None,
    label: str | None = None,
    cache: str | os.PathLike[str] | None = None,
    cache_size: int | str | None = None,
    storage_options: Mapping[str, Any] | None = None,
    timeout: float | str | None = None,
    **options: Unpack[SourceKeywords],
) -> Samples | PackedDataset:
    """The samples of a source as a map-style Dataset: nothing is packed, copied or written.

    Headers are read now. FastLoader's native threads read and decode the images where
    they lie, if each lies in one piece in a local file: in tars, in uncompressed Arrow and Parquet files,
    TFRecord files, MDS shards, LitData chunks, an LMDB file, or as a file of its own. Other sources are read
    by the code that packs them, in worker processes. `loader.explain()` says which it is.

    Objects in a store are attached in the cache folder, once, and read through it.

    Args:
        source: whatever `fastload.pack` takes: ``"train-{000..146}.tar"``, a folder of .parquet files, a list
            of paths, a .csv, ...; or a streamed Hugging Face dataset.
        transform: a callable for each image, as in ImageFolder; None: samples have Pillow images. One of
            `fastload.transforms`, or a list of such, is run by FastLoader alone.
        fields: names of the fields, "image" among them; None: all, and of URLs the image and its label or
            number.
        label: member (``".cls"``) or column with the label; for URLs.
        cache, cache_size, storage_options, timeout: as PackedDataset takes them; for URLs.
        options: options for reading a source, as `fastload.pack` has them: `label_column`, `format`, `split`,
            ...

    Returns:
        Samples: ``(image, value)`` where there is one field of integers beside the image, such as a label,
            else a dict of all fields. Of URLs a PackedDataset.

    Raises:
        ArgumentError: the source is a packed dataset, there is no such field, or one lies in the image, such
            as boxes.
        PackError: the source cannot be read.
        RemoteError: the store does not answer.
    """
    store: dict[str, Any] = {
        "cache": cache,
        "cache_size": cache_size,
        "storage_options": storage_options,
        "timeout": timeout,
    }
    if (stream := streamed_files(source)) is not None:
        source = stream.urls
        if stream.token is not None:
            store["storage_options"] = {"token": stream.token, **(storage_options or {})}
    if has_urls(source):
        return _of_urls(source, transform, fields, label, SourceOptions.of(**options), store)
    if isinstance(source, str | os.PathLike) and is_packed(expanded(source)):
        raise ArgumentError(f"{os.fspath(source)} is a packed dataset: open it with PackedDataset")
    own = SourceOptions.of(**options)
    again = partial(open_source, source, replace(own, storage_options=storage_options, timeout=timeout))
    opened = again()
    if isinstance(opened, LooseObjects):
        return _of_urls(source, transform, fields, label, own, store, opened)
    for name, value in {"label": label, **store}.items():
        if value is not None:
            raise ArgumentError(f"{name}={value!r} is for objects in a store, named by their URLs")
    return Samples(opened, transform, fields, again)


_FIELDS = {".cls": LABEL, "cls": LABEL}
"""The fields of members that are not called as these are."""
_WAIT_S = 0.2
"""Seconds between two looks at what another process attaches."""


def _of_urls(
    source: object,
    transform: object,
    fields: Sequence[str] | None,
    label: str | None,
    options: SourceOptions,
    store: Mapping[str, Any],
    opened: LooseObjects | None = None,
) -> PackedDataset:
    """The dataset of objects in a store, attached below the cache folder, unless it is there; `opened`: of a
    table of their URLs. Raises as `read`."""
    asked = replace(options, storage_options=store["storage_options"], timeout=store["timeout"])
    root = default_folder() if store["cache"] is None else Path(expanded(store["cache"]))
    wanted = None if label is None else _FIELDS.get(label, label.removeprefix(".").replace(".", "_"))
    name = json.dumps([[str(each) for each in each_of(source)], wanted, fields, repr(options)])
    folder = own_folder(root.absolute(), "attached", name, "name a folder of your own with cache=")
    taken = None if fields is None else [each for each in fields if each != IMAGE_FIELD]
    only = [wanted] if wanted else LABEL_FIELD if taken is None else taken
    while not _is_attached(source if opened is None else opened, folder, asked, only):
        time.sleep(_WAIT_S)  # another process, such as another rank, does the same
    return PackedDataset(folder, transform, fields=fields, **store)


def _is_attached(source: object, folder: Path, options: SourceOptions, fields: str | Sequence[str]) -> bool:
    """Attaches objects into a folder, unless they are as they are now. False: another process does it."""
    keep, run = PackOptions.of({**settled("pack", {}), "encode": "keep"}), RunOptions(resume=True)
    try:
        attach_objects(source, folder, keep, run, options, check=False, fields=fields)
    except LockedError:
        return False
    except OtherObjectsError:
        again = replace(run, resume=False, overwrite=True)
        try:
            attach_objects(source, folder, keep, again, options, check=False, fields=fields)
        except LockedError:
            return False
    return True
