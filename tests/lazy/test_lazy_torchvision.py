"""Chains of torchvision's transforms, v1 and v2, on lazy images: tensors and random numbers are those of
plain images."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest
import torch
from lazy_helpers import files, jpeg, lazily
from pictures import photo
from PIL import Image
from torchvision import transforms as V
from torchvision.transforms import InterpolationMode, v2

from fastload.lazy import counts

BICUBIC, LANCZOS, NEAREST = InterpolationMode.BICUBIC, InterpolationMode.LANCZOS, InterpolationMode.NEAREST
CHAINS: dict[str, Any] = {
    "reference train": lambda: V.Compose(
        [V.RandomResizedCrop(48), V.RandomHorizontalFlip(), V.PILToTensor(), V.ConvertImageDtype(torch.float)]
    ),
    "reference eval": lambda: V.Compose([V.Resize(60), V.CenterCrop(48), V.PILToTensor()]),
    "to tensor": lambda: V.Compose(
        [V.RandomResizedCrop(48, interpolation=BICUBIC), V.ToTensor(), V.Normalize([0.5] * 3, [0.2] * 3)]
    ),
    "lanczos": lambda: V.Compose([V.Resize((40, 50), LANCZOS), V.RandomVerticalFlip(1.0), V.ToTensor()]),
    "nearest": lambda: V.Compose([V.Resize(31, NEAREST), V.RandomCrop(24), V.PILToTensor()]),
    "large resize": lambda: V.Compose([V.Resize(300, max_size=400), V.CenterCrop(200), V.PILToTensor()]),
    "padding crop": lambda: V.Compose([V.RandomCrop(130, pad_if_needed=True), V.PILToTensor()]),
    "centre beyond": lambda: V.Compose([V.CenterCrop(150), V.PILToTensor()]),
    "pad": lambda: V.Compose([V.Pad(7, padding_mode="reflect"), V.RandomCrop(64), V.ToTensor()]),
    "two resizes": lambda: V.Compose([V.Resize(70), V.RandomCrop(60), V.Resize((30, 33)), V.PILToTensor()]),
    "five crops": lambda: V.Compose(
        [V.FiveCrop(40), lambda crops: torch.stack([V.functional.pil_to_tensor(crop) for crop in crops])]
    ),
    "ten crops": lambda: V.Compose(
        [V.TenCrop(40), lambda crops: torch.stack([V.functional.to_tensor(crop) for crop in crops])]
    ),
    "jitter": lambda: V.Compose([V.RandomResizedCrop(48), V.ColorJitter(0.4, 0.4, 0.4, 0.1), V.ToTensor()]),
    "grey": lambda: V.Compose([V.RandomResizedCrop(48), V.RandomGrayscale(0.5), V.ToTensor()]),
    "greyscale": lambda: V.Compose([V.Grayscale(), V.Resize(40), V.ToTensor()]),
    "rotation": lambda: V.Compose([V.RandomRotation(30), V.CenterCrop(50), V.PILToTensor()]),
    "affine": lambda: V.Compose([V.RandomAffine(10, (0.1, 0.1), (0.8, 1.2)), V.Resize(50), V.PILToTensor()]),
    "perspective": lambda: V.Compose([V.RandomPerspective(p=1.0), V.Resize(50), V.PILToTensor()]),
    "blur": lambda: V.Compose([V.RandomResizedCrop(48), V.GaussianBlur(3), V.ToTensor()]),
    "solarize": lambda: V.Compose(
        [V.RandomResizedCrop(48), V.RandomSolarize(128, 0.5), V.RandomPosterize(4), V.ToTensor()]
    ),
    "autoaugment": lambda: V.Compose([V.RandomResizedCrop(48), V.AutoAugment(), V.PILToTensor()]),
    "randaugment": lambda: V.Compose([V.RandAugment(), V.RandomResizedCrop(48), V.PILToTensor()]),
    "trivial": lambda: V.Compose([V.TrivialAugmentWide(), V.Resize(48), V.ToTensor()]),
    "augmix": lambda: V.Compose([V.Resize(48), V.AugMix(), V.PILToTensor()]),
    "v2 image": lambda: v2.Compose(
        [
            v2.RandomResizedCrop(48),
            v2.RandomHorizontalFlip(),
            v2.PILToTensor(),
            v2.ToDtype(torch.float32, scale=True),
        ]
    ),
    "v2 to image": lambda: v2.Compose(
        [v2.ToImage(), v2.RandomResizedCrop(48, antialias=True), v2.ToDtype(torch.float32, scale=True)]
    ),
    "v2 eval": lambda: v2.Compose([v2.Resize(60), v2.CenterCrop(48), v2.ToImage()]),
    "v2 jitter": lambda: v2.Compose(
        [v2.RandomResize(40, 70), v2.ColorJitter(0.3), v2.RandomPhotometricDistort(), v2.ToImage()]
    ),
    "v2 zoom": lambda: v2.Compose([v2.RandomZoomOut(p=1.0), v2.RandomShortestSize(40), v2.ToImage()]),
    "v2 scale": lambda: v2.Compose(
        [v2.ScaleJitter((60, 60)), v2.RandomCrop(50, pad_if_needed=True), v2.ToImage()]
    ),
    "v2 rgb": lambda: v2.Compose(
        [v2.RGB(), v2.RandomRotation(20), v2.RandomChoice([v2.Resize(30), v2.CenterCrop(30)]), v2.ToImage()]
    ),
    "v2 augment": lambda: v2.Compose(
        [v2.RandomResizedCrop(48), v2.AutoAugment(), v2.RandAugment(), v2.ToImage()]
    ),
    "several crops": lambda: (
        lambda image: torch.cat(
            [
                V.Compose([V.RandomResizedCrop(32, (s, 1.0)), V.RandomHorizontalFlip(), V.ToTensor()])(image)
                for s in (0.5, 0.5, 0.05, 0.05, 0.05)
            ]
        )
    ),
}


def sample(transform: Any, data: bytes, mode: str | None) -> Any:
    image: Image.Image = Image.open(io.BytesIO(data))
    return transform(image if mode is None else image.convert(mode))


def run(name: str) -> Any:
    """Tensors of several images and draws, and the states of the generators."""
    torch.manual_seed(3)
    transform = CHAINS[name]()
    large = jpeg(photo(8, 120, 160))
    made = [
        sample(transform, data, mode)
        for data in (large, files()["420"], files()["444"], large)
        for mode in ("RGB", None)
    ]
    made.append(sample(transform, files()["grey"], "RGB"))
    return made, torch.get_rng_state()


@pytest.mark.parametrize("name", list(CHAINS))
def test_a_chain_gives_the_same(name: str) -> None:
    """Bit for bit, and with as many random numbers drawn."""
    plain, state = run(name)
    counts.take()
    with lazily():
        lazy, other = run(name)
    assert torch.equal(state, other)
    for a, b in zip(plain, lazy, strict=True):
        assert type(a) is type(b)
        assert a.dtype == b.dtype
        assert a.stride() == b.stride()
        assert torch.equal(a, b)
    told = counts.take()
    assert told is not None
    assert told.opened == 9


@pytest.mark.parametrize(
    "name", ["reference train", "reference eval", "to tensor", "v2 image", "v2 eval", "several crops"]
)
def test_no_pillow_image_is_made(name: str) -> None:
    """From the file to the tensor there are arrays alone."""
    counts.take()
    with lazily():
        run(name)
    told = counts.take()
    assert told is not None
    assert not told.whole


def test_arrays_are_as_pillows() -> None:
    """np.array gives memory of its own, np.asarray one that cannot be written to."""
    with lazily():
        image = Image.open(io.BytesIO(files()["420"]))
    assert not np.asarray(image).flags.writeable
    own = np.array(image)
    own[:] = 0
    assert np.asarray(image).any()
