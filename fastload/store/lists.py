"""Places of the images of a field of kind `images`.

NOTE [ lists: images of any number ]
A sample's images are neighbours in a packed dataset of images, in the folder `images` of the sample's. So
each image has a place, a size in a column, an entropy index and a checksum of its own: a plan by sizes reads
no record, a crop reads and decodes a part of one image, and of a bucket the chosen images alone are fetched.
The field's column has the number of the sample's first image there, a hidden one their count. The dataset of
images is complete before the other one's manifest is written, and no change of samples touches it: samples
that were dropped leave images that nobody asks for.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from fastload.common.urls import is_remote

if TYPE_CHECKING:
    from fastload.store.reader import DatasetReader

FOLDER = "images"
DOCUMENT = "document"
"""Field of the images' dataset: the number of the image's sample in the order in which they were packed."""


def spans(
    reader: DatasetReader, samples: npt.NDArray[np.int64]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """The number of the first image of some samples, and how many each has, int64 (samples,)."""
    images = reader.schema.images
    assert images is not None
    names = images.name, *reader.schema.hidden_names(images)
    first, count = (np.asarray(reader.values(name)[samples], np.int64) for name in names)
    return first, count


def images_path(path: str | os.PathLike[str]) -> str:
    """The folder or URL of the images of a dataset."""
    text = os.fspath(path)
    return f"{text.rstrip('/')}/{FOLDER}" if is_remote(text) else os.path.join(text, FOLDER)
