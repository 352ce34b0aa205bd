"""dtype= and memory_format= where a Python step makes the images of packed data: what the native pass writes elsewhere.

NOTE [ forms: where ]
With default_collate the images of a whole batch are converted, as the first of the loader's steps on batches, on its device. Where the
user's collate_fn, or batch_size=None, takes samples, each image is converted before it, in the process that made it: on native threads
such a function gets converted images as well.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from fastload.device.stage_call import changed, places
from fastload.device.to_float import Form


@dataclass(frozen=True)
class FormedSamples:
    """A collate_fn behind a Form, which is applied to each sample's image."""

    collate: Any
    form: Form
    fields: tuple[str, str]
    batched: bool

    def __call__(self, samples: Any) -> Any:
        return self.collate([self._formed(sample) for sample in samples] if self.batched else self._formed(samples))

    def _formed(self, sample: Any) -> Any:
        at = places(sample, self.fields)
        return self.form.one(sample) if at is None else changed(sample, at[:1], (self.form.one(sample[at[0]]),))
