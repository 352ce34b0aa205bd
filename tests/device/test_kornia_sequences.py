"""Kornia's sequences as batch_transform=: taken apart, per sample, ahead of the loop, with the objects
that data_keys name; or why not."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import kornia.augmentation as K
import pytest
import torch
from scenes import Scenes
from torch import Tensor, nn
from torch.utils.data import Dataset, IterableDataset

import fastload
from fastload import FastLoader, PackedDataset
from fastload import augment as A
from fastload import transforms as T
from fastload.errors import ArgumentError, TransformError

pytestmark = pytest.mark.usefixtures("no_leaks", "one_thread")
SIZE = T.Resize((32, 40))


def flip() -> Any:
    return K.RandomHorizontalFlip()


def jitter() -> Any:
    return K.ColorJitter(0.4, 0.4, 0.4, 0.1)


def turn() -> Any:
    return K.RandomAffine(20.0, (0.1, 0.1))


SEQUENCES: dict[str, Callable[[], Any]] = {
    "AugmentationSequential": lambda: K.AugmentationSequential(flip(), jitter(), turn(), data_keys=["input"]),
    "ImageSequential": lambda: K.ImageSequential(flip(), jitter(), turn(), keepdim=True),
    "nn.Sequential": lambda: nn.Sequential(flip(), jitter(), turn()),
    "nested": lambda: K.AugmentationSequential(
        K.ImageSequential(flip(), jitter()), nn.Sequential(turn()), same_on_batch=False
    ),
    "options": lambda: K.AugmentationSequential(
        flip(), jitter(), turn(), transformation_matrix_mode="skip", random_apply_weights=[1, 2, 3]
    ),
}


def pixels(data: Any, transform: Any, **options: Any) -> Tensor:
    """Images of the second epoch, in the dataset's order."""
    with FastLoader(
        data,
        **{"batch_size": 8, "seed": 3, "transform": SIZE, "device": "cpu", **options},
        batch_transform=transform,
    ) as loader:
        loader.set_epoch(1)
        return torch.cat([images.clone() for images, *_ in loader])


@pytest.mark.parametrize("make", SEQUENCES.values(), ids=SEQUENCES)
def test_sequences_are_their_modules(packed: Path, make: Callable[[], Any]) -> None:
    """A sequence, given as batch_transform or in an AugmentBatch, does what its modules do one after the
    other in an AugmentBatch."""
    want = pixels(packed, A.AugmentBatch([flip(), jitter(), turn()]))
    assert torch.equal(pixels(packed, make()), want)
    assert torch.equal(pixels(packed, [A.AugmentBatch([make()])]), want)


def test_pixels_depend_on_seed_epoch_and_index_alone(packed: Path) -> None:
    """The same for other batch sizes, numbers of workers and prefetched batches, bytes among them; other
    seeds give others."""
    sequence = SEQUENCES["AugmentationSequential"]()
    want = pixels(packed, sequence)
    assert want.dtype == torch.uint8
    for options in (
        {"batch_size": 5, "num_workers": 2},
        {"device_prefetch": 0},
        {"device_prefetch": 3, "num_workers": 1},
        {"engine": "python"},
    ):
        assert torch.equal(pixels(packed, sequence, **options), want), options
    assert not torch.equal(pixels(packed, sequence, seed=4), want)


def test_changes_between_epochs(packed: Path) -> None:
    """A module that is changed between two epochs does in the next one what it does now."""
    sequence = K.AugmentationSequential(K.RandomHorizontalFlip(p=1.0))
    with FastLoader(packed, 8, transform=SIZE, batch_transform=sequence) as loader:
        mirrored = torch.cat([images.clone() for images, _ in loader])
        sequence[0].p = 0.0
        assert torch.equal(torch.cat([images.clone() for images, _ in loader]), mirrored.flip(-1))


def test_resumed_in_mid_epoch(packed: Path) -> None:
    """A loader that goes on from a state makes the batches that the first one still would have made."""
    options: dict[str, Any] = {
        "batch_size": 8,
        "shuffle": True,
        "seed": 3,
        "transform": SIZE,
        "num_workers": 2,
        "device": "cpu",
    }
    with FastLoader(packed, **options, batch_transform=SEQUENCES["nested"]()) as loader:
        batches = iter(loader)
        for _ in range(3):
            next(batches)
        state = loader.state_dict()
        rest = [images.clone() for images, _ in batches]
    with FastLoader(packed, **options, batch_transform=SEQUENCES["nested"]()) as again:
        again.load_state_dict(state)
        found = [images.clone() for images, _ in again]
    assert len(rest) == len(found) == 4
    assert all(map(torch.equal, rest, found))


@pytest.fixture(scope="module")
def scenes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Scenes with a mask, boxes, keypoints and instances each."""
    out = tmp_path_factory.mktemp("scenes") / "d"
    fastload.pack(Scenes(18), out)
    return out


def of_scenes(path: Path, transform: Any, fields: list[str], **options: Any) -> FastLoader[Any]:
    dataset = PackedDataset(path, T.Resize((40, 48)), fields=fields)
    return FastLoader(
        dataset,
        **{"batch_size": 6, "seed": 3, "device": "cpu", "collate": "padded", **options},
        batch_transform=transform,
    )


def test_data_keys_move_the_batchs_fields(scenes: Path) -> None:
    """Fields of the kinds that data_keys name move with the images, under any name, as an AugmentBatch of
    the modules moves them."""
    keys = ["input", "mask", "bbox_xyxy", "keypoints"]
    fields = ["image", "mask", "boxes", "points", "masks", "number"]
    crop = K.RandomCrop((32, 32))
    sequence = K.AugmentationSequential(K.RandomVerticalFlip(), jitter(), crop, data_keys=keys)
    with (
        of_scenes(scenes, sequence, fields) as found,
        of_scenes(
            scenes,
            A.AugmentBatch([K.RandomVerticalFlip(), jitter(), crop]),
            fields,
            batch_size=5,
            num_workers=1,
        ) as want,
    ):
        got = {int(number): (batch, row) for batch in found for row, number in enumerate(batch["number"])}
        for batch in want:
            assert batch["image"].shape[2:] == batch["mask"].shape[1:] == (32, 32)
            for row, number in enumerate(batch["number"]):
                other, at = got[int(number)]
                assert torch.equal(batch["image"][row], other["image"][at])
                assert torch.equal(batch["mask"][row], other["mask"][at])
                for name in ("boxes", "points", "masks"):
                    count = int(batch[name].lengths[row])
                    assert torch.equal(batch[name].values[row, :count], other[name].values[at, :count])


@pytest.mark.parametrize(
    ("keys", "fields", "said"),
    [
        (
            ["input"],
            ["image", "mask"],
            "the batch has masks, which would stay where they are: add 'mask' to data_keys",
        ),
        (["input", "mask"], ["image", "number"], "data_keys name masks, and the batch has none"),
        (
            ["input", "bbox_xywh"],
            ["image", "boxes"],
            "the batch's boxes are xyxy: write 'bbox_xyxy' in data_keys",
        ),
    ],
)
def test_contradictions_are_found_before_a_batch(
    scenes: Path, keys: list[str], fields: list[str], said: str
) -> None:
    """A data key without a field, a field without a data key, and another format of boxes are errors when
    the loader plans."""
    with pytest.raises(ArgumentError, match=re.escape(said)):
        of_scenes(scenes, K.AugmentationSequential(turn(), data_keys=keys), fields)


def test_objects_may_stay_where_nothing_moves(scenes: Path) -> None:
    """Fields in the image need no data key beside modules that change colours alone."""
    with of_scenes(
        scenes, K.AugmentationSequential(jitter(), data_keys=["input"]), ["image", "mask", "number"]
    ) as loader:
        assert [len(batch["mask"]) for batch in loader] == [6] * 3


class Pairs(Dataset[Any]):
    """Images with a mask of the same pixels and a label, in the order in which data_keys name them."""

    def __len__(self) -> int:
        return 10

    def __getitem__(self, index: int) -> Any:
        image = torch.randint(
            0, 256, (3, 16, 20), dtype=torch.uint8, generator=torch.Generator().manual_seed(index)
        )
        return image, image[0].clone(), index


@pytest.mark.parametrize("workers", [0, 2])
def test_data_keys_name_the_values_of_a_tuple(workers: int) -> None:
    """Of a dataset of Python whose samples are tuples, data_keys name the values in order: masks follow,
    labels stay."""
    sequence = K.AugmentationSequential(
        K.RandomHorizontalFlip(), K.RandomVerticalFlip(), data_keys=["input", "mask", "class"]
    )
    with FastLoader(Pairs(), 5, num_workers=workers, seed=1, batch_transform=sequence) as loader:
        for images, masks, labels in loader:
            assert torch.equal(masks, images[:, 0])
            assert labels.tolist() == [labels[0] + row for row in range(5)]
    assert not torch.equal(images, torch.stack([Pairs()[index][0] for index in labels.tolist()]))


@pytest.mark.parametrize(
    ("sequence", "said"),
    [
        (K.AugmentationSequential(flip(), data_keys=["input", "bbox"]), "data_keys have 'bbox'"),
        (
            K.AugmentationSequential(flip(), jitter(), random_apply=1, data_keys=["input", "mask"]),
            "data_keys image, mask, but gets the images alone, since AugmentationSequential does not "
            "run per sample: its random_apply",
        ),
    ],
)
def test_data_keys_that_no_batch_can_meet(sequence: Any, said: str) -> None:
    """Corners of boxes, and several values for what stays in one piece and gets images alone, are refused
    when the loader plans."""
    with pytest.raises(ArgumentError, match=re.escape(said)):
        FastLoader(Pairs(), 5, batch_transform=sequence)


class Grey(Pairs):
    def __getitem__(self, index: int) -> Any:
        return super().__getitem__(index)[0][:1].double() / 255, index


def test_any_channels_and_float64() -> None:
    """Where Kornia takes one channel, or float64, so does its sequence here."""
    with FastLoader(
        Grey(), 5, seed=1, batch_transform=nn.Sequential(K.RandomAffine(20.0), K.RandomGamma((0.5, 2.0)))
    ) as loader:
        images = torch.cat([images for images, _ in loader])
    assert (images.dtype, images.shape[1]) == (torch.float64, 1)
    assert not torch.equal(images, torch.stack([Grey()[index][0] for index in range(10)]))


class Own(K.AugmentationSequential):  # type: ignore[misc]
    def forward(self, images: Tensor) -> Tensor:
        return images.flip(-1)


def hooked() -> Any:
    sequence = K.ImageSequential(flip())
    sequence.register_forward_hook(lambda module, given, found: found)
    return sequence


def replaced() -> Any:
    sequence = K.ImageSequential(flip())
    sequence.forward = lambda images: images.flip(-1)
    return sequence


WHOLE: dict[str, tuple[Callable[[], Any], str]] = {
    "random_apply": (
        lambda: K.AugmentationSequential(flip(), jitter(), random_apply=1),
        "its random_apply is not the default",
    ),
    "extra_args": (
        lambda: K.AugmentationSequential(
            flip(), extra_args={K.AugmentationSequential().data_keys[0]: {"resample": "nearest"}}
        ),
        "its extra_args is not the default",
    ),
    "rigid": (
        lambda: K.AugmentationSequential(flip(), transformation_matrix_mode="rigid"),
        "its transformation_matrix_arg is not the default",
    ),
    "same_on_batch": (
        lambda: K.AugmentationSequential(turn(), same_on_batch=True),
        "RandomAffine does not run per sample: it draws once",
    ),
    "a mix": (
        lambda: K.ImageSequential(flip(), K.RandomMixUpV2(data_keys=["input"])),
        "RandomMixUpV2 does not run per sample: it mixes samples",
    ),
    "another module": (
        lambda: nn.Sequential(flip(), nn.Identity()),
        "Identity does not run per sample: its class is not known to",
    ),
    "inside": (
        lambda: K.ImageSequential(flip(), K.ImageSequential(jitter(), random_apply=1)),
        "its random_apply is not the default",
    ),
    "a subclass": (lambda: Own(flip()), "Own does not run per sample: its class is not known to"),
    "a hook": (hooked, "its forward_hooks is not the default"),
    "a replaced method": (replaced, "its forward is not the default"),
}


@pytest.mark.parametrize(("make", "said"), WHOLE.values(), ids=WHOLE)
def test_what_stays_whole_says_why(packed: Path, make: Callable[[], Any], said: str) -> None:
    """What cannot be taken apart runs as it is, seeded per batch, and explain() says why in its line;
    AugmentBatch says it in its error."""
    with FastLoader(
        packed, 8, transform=SIZE, device="cpu", dtype=torch.float32, batch_transform=make()
    ) as loader:
        (line,) = [line for line in loader.explain(all=True).splitlines() if "global generators" in line]
    assert said in line
    assert torch.equal(
        *(pixels(packed, make(), dtype=torch.float32, device_prefetch=prefetch) for prefetch in (0, 2))
    )
    with pytest.raises(TransformError, match=re.escape(said)):
        A.AugmentBatch([make()])


class Stream(IterableDataset[Any]):
    def __iter__(self) -> Iterator[Any]:
        return (Grey()[index] for index in range(10))


def test_samples_without_indices(packed: Path) -> None:
    """An IterableDataset's samples have no indices to draw from: a sequence is seeded per batch as ever,
    and explain() says so."""
    with FastLoader(Stream(), 5, seed=1, batch_transform=nn.Sequential(K.RandomAffine(20.0))) as loader:
        assert "an IterableDataset have no indices" in loader.explain(all=True)
        assert len(list(loader)) == 2


class Named(Pairs):
    def __getitem__(self, index: int) -> Any:
        image, mask, _ = super().__getitem__(index)
        return {"input": image.float() / 255, "mask": mask}


def test_a_sequence_that_takes_dicts() -> None:
    """data_keys=None: of a dataset that is not known the sequence gets the dict, as ever; of packed data
    all fields in the image move."""
    sequence = K.AugmentationSequential(K.RandomHorizontalFlip(p=1.0), data_keys=None)
    with FastLoader(Named(), 5, batch_transform=sequence) as loader:
        assert "data_keys=None takes whole dicts" in loader.explain(all=True)
        batch = next(iter(loader))
    assert torch.equal((batch["input"][:, 0] * 255).round().to(torch.uint8), batch["mask"][:, 0])
    assert torch.equal(batch["mask"][0, 0], Named()[0]["mask"].flip(-1))


def test_a_dict_of_packed_data(scenes: Path) -> None:
    """data_keys=None on packed data: every field that lies in the image moves with it."""
    sequence = K.AugmentationSequential(K.RandomHorizontalFlip(p=1.0), data_keys=None)
    with (
        of_scenes(scenes, sequence, ["image", "mask", "number"]) as found,
        of_scenes(scenes, None, ["image", "mask", "number"]) as plain,
    ):
        for after, before in zip(found, plain, strict=True):
            assert torch.equal(after["image"], before["image"].flip(-1))
            assert torch.equal(after["mask"], before["mask"].flip(-1))


def test_what_cannot_be_copied_stays_whole() -> None:
    """A module whose last parameters have a history cannot be copied: it is seeded per batch, and
    explain() says so."""
    learnt = K.RandomBrightness((0.5, 1.5))
    learnt._params = {"brightness_factor": torch.ones(1, requires_grad=True) * 2}
    with FastLoader(Grey(), 5, batch_transform=nn.Sequential(learnt)) as loader:
        assert "RandomBrightness does not run per sample: it cannot be copied" in loader.explain(all=True)
        assert len(list(loader)) == 2


def test_explain_names_each_module(packed: Path) -> None:
    """Each module of a sequence has its line, and none waits for the loop."""
    with FastLoader(packed, 8, transform=SIZE, device="cpu", batch_transform=SEQUENCES["nested"]()) as loader:
        text = loader.explain(all=True)
    assert re.findall(r"^KorniaOp\((\w+)", text, re.MULTILINE) == [
        "RandomHorizontalFlip",
        "ColorJitter",
        "RandomAffine",
    ]
    assert "global generators" not in text
