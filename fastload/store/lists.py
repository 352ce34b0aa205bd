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

from fastload.common.urls import is_remote

FOLDER = "images"
DOCUMENT = "document"
"""Field of the images' dataset: the number of the image's sample in the order in which they were packed."""


def images_path(path: str | os.PathLike[str]) -> str:
    """The folder or URL of the images of a dataset."""
    text = os.fspath(path)
    return f"{text.rstrip('/')}/{FOLDER}" if is_remote(text) else os.path.join(text, FOLDER)
