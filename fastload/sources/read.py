"""read: samples in files of other programs as a Dataset, which native threads read as they lie."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from typing_extensions import Unpack

from fastload.common.files import expanded
from fastload.dataset.in_place.samples import Samples
from fastload.errors import ArgumentError
from fastload.sources import is_packed, open_source
from fastload.sources.foreign import refuse_urls
from fastload.sources.options import SourceKeywords, SourceOptions


def read(
    source: object,
    *,
    transform: Callable[[Any], Any] | Sequence[Any] | None = None,
    fields: Sequence[str] | None = None,
    **options: Unpack[SourceKeywords],
) -> Samples:
    """The samples of a source as a map-style Dataset: nothing is packed, copied or written.

    Headers are read now, to list the samples. FastLoader's native threads read and decode the images where
    they lie, if each lies in one piece in a local file: in tars, in uncompressed Arrow and Parquet files,
    TFRecord files, MDS shards, LitData chunks, an LMDB file, or as a file of its own. Other sources are read
    by the code that packs them, in worker processes. `loader.explain()` says which it is.

    Args:
        source: whatever `fastload.pack` takes: ``"train-{000..146}.tar"``, a folder of .parquet files, a list
            of paths, a .csv, ...
        transform: a callable for each image, as in ImageFolder; None: samples have Pillow images. One of
            `fastload.transforms`, or a list of such, is run by FastLoader alone.
        fields: names of the fields, "image" among them; None: all.
        options: options for reading a source, as `fastload.pack` has them: `label_column`, `format`, `split`,
            ...

    Returns:
        Samples: ``(image, value)`` where there is one field of integers beside the image, such as a label,
            else a dict of all fields.

    Raises:
        ArgumentError: the source is a packed dataset, there is no such field, or one lies in the image, such
            as boxes.
        PackError: the source cannot be read.
    """
    if isinstance(source, str | os.PathLike) and is_packed(expanded(source)):
        raise ArgumentError(f"{os.fspath(source)} is a packed dataset: open it with PackedDataset")
    refuse_urls(source, "`read` takes")
    again = partial(open_source, source, SourceOptions.of(**options))
    return Samples(again(), transform, fields, again)
