"""Conversion to dtype= and memory_format= of images that Python transforms made from packed data. Elsewhere the native pass does it.

NOTE [ forms: where ]
With default_collate the images of a whole batch are converted on the batch's device, by the first batch stage. With the user's collate_fn,
or with batch_size=None, each image is converted before it is collated, in the process that made it. So such a function receives converted
images, as it does from native threads.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from fastload.batch.containers import part_at, with_part
from fastload.device.stage_call import BatchFields
from fastload.device.to_float import Form


@dataclass(frozen=True)
class FormedSamples:
    """A collate_fn that first applies a Form to the images of each sample."""

    collate: Any
    form: Form
    fields: BatchFields
    batched: bool

    def __call__(self, samples: Any) -> Any:
        return self.collate([self._formed(sample) for sample in samples] if self.batched else self._formed(samples))

    def _formed(self, sample: Any) -> Any:
        for path in self.fields.images_in(sample):
            image = part_at(sample, path)
            formed = [self.form.one(view) for view in image] if isinstance(image, list) else self.form.one(image)
            sample = with_part(sample, path, formed)
        return sample
