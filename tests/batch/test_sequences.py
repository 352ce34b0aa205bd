"""PackSequences: the sequences of a batch in one row, as transformers' models and FlashAttention take them;
equal on every engine."""

from __future__ import annotations

import copy
import pickle
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torchvision_ops  # noqa: F401  (torchvision, which transformers imports, asks for operators that a plain CPU build lacks)
from hypothesis import given
from hypothesis import strategies as st
from pictures import photo
from torch.utils.data import ConcatDataset, Dataset, Subset

import fastload
from fastload import FastLoader, PackedDataset, PackSequences, PatchedImages, TokenBatches
from fastload import transforms as T
from fastload.errors import ArgumentError

IMAGE = 999
COUNT = 24
PATCHES = T.Patches(max_pixels=150 * 150, dct_scale=False)


class Documents(Dataset[Any]):
    """Texts of 3 to 40 tokens with one image in each."""

    def __len__(self) -> int:
        return COUNT

    def __getitem__(self, index: int) -> dict[str, Any]:
        rng = np.random.default_rng(index)
        ids = rng.integers(0, 900, int(rng.integers(3, 40)))
        ids[rng.integers(0, len(ids))] = IMAGE
        return {
            "image": photo(index, 100 + 7 * index, 90 + 5 * index),
            "input_ids": ids,
            "prompt": int(rng.integers(0, 3)),
            "quiet": (rng.random(len(ids)) < 0.3).astype(np.uint8),
        }


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("documents") / "documents.fl"
    fields = fastload.pack(Documents(), out).fields
    assert [(each.kind, each.shape) for each in fields[1:]] == [
        ("array", (None,)),
        ("int", ()),
        ("array", (None,)),
    ]
    return out


def by_hand(samples: list[dict[str, Any]], merge: int = 2) -> list[dict[str, list[int]]]:
    """Ids, positions and labels of each sequence, token by token."""
    out = []
    for sample in samples:
        (_, down, across) = sample["image"].image_grid_thw[0].tolist()
        down, across = down // merge, across // merge
        ids: list[int] = []
        positions: list[tuple[int, int, int]] = []
        labels: list[int] = []
        at = 0
        for place, token in enumerate(sample["input_ids"].tolist()):
            said = place >= sample["prompt"] and not sample["quiet"][place] and place > 0
            if token == IMAGE:
                ids += [token] * (down * across)
                positions += [(at, at + row, at + column) for row in range(down) for column in range(across)]
                labels += [-100] * (down * across)
                at += max(down, across)
            else:
                ids.append(token)
                positions.append((at, at, at))
                labels.append(token if said else -100)
                at += 1
        out.append({"ids": ids, "positions": positions, "labels": labels})
    return out


@pytest.mark.parametrize("mrope", [False, True])
@pytest.mark.parametrize(
    "arguments",
    [
        {"num_workers": 0},
        {"num_workers": 2},
        {"num_workers": 0, "engine": "python"},
        {"num_workers": 2, "engine": "python"},
    ],
    ids=str,
)
def test_a_batch(arguments: dict[str, Any], mrope: bool, packed: Path) -> None:
    """Token by token as by hand, on every engine; labels are -100 at first tokens, at images and what the
    masks name; other fields come as they are."""
    dataset = PackedDataset(packed, [PATCHES], seed=0)
    collate = PackSequences(image_token=IMAGE, mask=("prompt", "quiet"), mrope=mrope, vocabulary=1000)
    with FastLoader(dataset, batch_size=5, collate_fn=collate, **arguments) as loader:
        batches = list(loader)
    for number, batch in enumerate(batches):
        samples = [dataset[index] for index in range(5 * number, min(COUNT, 5 * number + 5))]
        expected = by_hand(samples)
        assert batch["input_ids"].tolist() == [token for each in expected for token in each["ids"]]
        assert batch["labels"].tolist() == [label for each in expected for label in each["labels"]]
        lengths = [len(each["ids"]) for each in expected]
        assert batch["cu_seqlens"].dtype == torch.int32
        assert batch["cu_seqlens"].tolist() == [0, *np.cumsum(lengths).tolist()]
        assert batch["max_seqlen"] == max(lengths)
        if mrope:
            assert batch["position_ids"].T.tolist() == [
                list(p) for each in expected for p in each["positions"]
            ]
        else:
            assert batch["position_ids"].tolist() == [place for length in lengths for place in range(length)]
        assert torch.equal(batch["pixel_values"], torch.cat([each["image"].pixel_values for each in samples]))
        assert batch.keys() == {
            *(
                "input_ids",
                "labels",
                "cu_seqlens",
                "max_seqlen",
                "position_ids",
                "pixel_values",
                "image_grid_thw",
            )
        }


def test_positions_are_qwens(packed: Path) -> None:
    """get_rope_index of transformers, sequence by sequence."""
    model = pytest.importorskip("transformers.models.qwen2_vl.modeling_qwen2_vl").Qwen2VLModel
    config = types.SimpleNamespace(vision_config=types.SimpleNamespace(spatial_merge_size=2))
    theirs = types.SimpleNamespace(config=config)
    theirs.get_vision_position_ids = types.MethodType(model.get_vision_position_ids, theirs)
    dataset = PackedDataset(packed, [PATCHES], fields=("image", "input_ids"))
    collate = PackSequences(image_token=IMAGE, mrope=True)
    with FastLoader(dataset, batch_size=COUNT, collate_fn=collate, num_workers=1) as loader:
        (batch,) = loader
    for row, (start, stop) in enumerate(zip(batch["cu_seqlens"], batch["cu_seqlens"][1:], strict=False)):
        ids, grid = batch["input_ids"][None, start:stop], batch["image_grid_thw"][row : row + 1]
        expected, _ = model.get_rope_index(theirs, ids, (ids == IMAGE).int(), grid)
        assert torch.equal(batch["position_ids"][:, start:stop], expected[:, 0])


def test_a_plan_knows_the_lengths(packed: Path) -> None:
    """TokenBatches of a field of ids plans the lengths that sequences get; bins are not over-full."""
    dataset = PackedDataset(packed, [PATCHES], fields=("image", "input_ids"))
    batches = TokenBatches(dataset, 120, text="input_ids", bins=1, seed=1)
    collate = PackSequences(image_token=IMAGE)
    with FastLoader(dataset, batch_sampler=batches, collate_fn=collate, num_workers=2) as loader:
        lengths = [batch["cu_seqlens"].diff().tolist() for batch in loader]
    assert [[int(batches.lengths[index : index + 1][0]) for index in each] for each in batches] == lengths
    assert max(map(sum, lengths)) <= 120


@pytest.mark.parametrize("arguments", [{"num_workers": 1}, {"num_workers": 0, "engine": "python"}], ids=str)
@pytest.mark.parametrize(("count", "length"), [(6, 4), (1, 4), (3, 3)])
def test_sequences_of_one_length(
    count: int, length: int, arguments: dict[str, Any], packed: Path, tmp_path: Path
) -> None:
    """Ids that are as many in every sample are stored as rows of one shape: planned and packed as others."""
    first = Documents()[0]
    rows = [
        {**first, "input_ids": np.arange(length) + IMAGE - index % 2, "quiet": np.ones(length, np.uint8)}
        for index in range(count)
    ]
    assert fastload.pack(rows, tmp_path / "same.fl").fields[1].shape == (length,)
    dataset = PackedDataset(tmp_path / "same.fl", [PATCHES])
    batches = TokenBatches(dataset, 1000, text="input_ids", bins=1)
    (_, down, across) = dataset[0]["image"].image_grid_thw[0].tolist()
    assert batches.lengths[:].tolist() == [length - 1 + down * across // 4] * count
    collate = PackSequences(image_token=IMAGE, mask=["quiet"])
    with FastLoader(dataset, batch_sampler=batches, collate_fn=collate, **arguments) as loader:
        (batch,) = loader
    assert batch["cu_seqlens"].diff().tolist() == batches.lengths[:].tolist()
    assert set(batch["labels"].tolist()) == {-100}


def test_a_plan_of_a_part(packed: Path) -> None:
    """Subsets are planned by their own samples, with numbers of their own or a column."""
    dataset = PackedDataset(packed, [PATCHES], fields=("image", "input_ids"))
    whole = TokenBatches(dataset, 1000, text="input_ids").lengths[:]
    part = Subset(dataset.where("prompt > 0"), [3, 1, 1])
    rows = [part.dataset.indices[place] for place in (3, 1, 1)]
    assert TokenBatches(part, 1000, text="input_ids").lengths[:].tolist() == whole[rows].tolist()
    own = TokenBatches(part, 1000, text=[5, 7, 9]).lengths[:] - TokenBatches(part, 1000).lengths[:]
    assert own.tolist() == [5, 7, 9]
    with pytest.raises(ArgumentError, match="text of 24 samples, the dataset has 3"):
        TokenBatches(part, 1000, text=[1] * COUNT)
    with pytest.raises(ArgumentError, match="give a PackedDataset, a Subset of one, or a number for each"):
        TokenBatches(ConcatDataset([dataset, dataset]), 1000)


def test_a_plan_is_copied(packed: Path) -> None:
    """Pickled and deep-copied, with the dataset in it."""
    batches = TokenBatches(PackedDataset(packed, [PATCHES]), 150, text="input_ids", bins=2, seed=1)
    for made in (pickle.loads(pickle.dumps(batches)), copy.deepcopy(batches)):
        assert list(made) == list(batches)
        assert made.long == batches.long


def test_a_plan_of_numbers_out_of_range(tmp_path: Path) -> None:
    """Sums beyond 32 bits are too long for any bin; columns are checked as given numbers are."""
    row = {"image": photo(1, 60, 60), "big": 1 << 40, "low": -1, "part": 0.5}
    fastload.pack([row, row], tmp_path / "odd.fl")
    dataset = PackedDataset(tmp_path / "odd.fl", [PATCHES])
    with pytest.raises(ArgumentError, match="sample 0 has 4294967295 tokens, as 0 others"):
        TokenBatches(dataset, 1000, text=[(1 << 32) - 1, 7])
    for name, message in {"big": "numbers from 0", "low": "-1 to -1; give", "part": "not float64"}.items():
        with pytest.raises(ArgumentError, match=f"text='{name}': .*{message}"):
            TokenBatches(dataset, 1000, text=name)


def test_a_plan_of_another_transform(packed: Path) -> None:
    """With another transform between passes the plan is another, and samples too long for it an error."""
    dataset = PackedDataset(packed, [PATCHES], fields=("image", "input_ids"))
    batches = TokenBatches(dataset, 150, bins=1, seed=1)
    before = len(batches)
    dataset.transform = [T.Patches(patch=28, max_pixels=150 * 150)]
    assert batches.lengths[:].tolist() == TokenBatches(dataset, 150).lengths[:].tolist()
    assert list(batches) == list(TokenBatches(dataset, 150, bins=1, seed=1))
    assert len(batches) < before
    dataset.transform = [T.Patches(patch=4, max_pixels=150 * 150)]
    for call in (len, iter):
        with pytest.raises(
            ArgumentError, match=r"sample \d+ has \d+ tokens, as \d+ others more than max_tokens"
        ):
            call(batches)


@given(st.lists(st.integers(0, 6), min_size=1, max_size=6), st.integers(1, 8))
def test_texts_alone(lengths: list[int], most: int) -> None:
    """Sequences of any length, empty ones too; max_tokens cuts each."""
    samples = [{"input_ids": torch.arange(length) + 10} for length in lengths]
    batch = PackSequences(max_tokens=most)(samples)
    cut = [min(length, most) for length in lengths]
    assert batch["input_ids"].tolist() == [10 + place for length in cut for place in range(length)]
    assert batch["position_ids"].tolist() == [place for length in cut for place in range(length)]
    assert batch["cu_seqlens"].tolist() == [0, *np.cumsum(cut).tolist()]
    assert batch["labels"].tolist() == [
        10 + place if place else -100 for length in cut for place in range(length)
    ]


def test_images_of_any_number() -> None:
    """A user's own samples may have several images, or none: placeholders are matched sample by sample."""
    two = PatchedImages(torch.zeros(4 + 8, 12), torch.tensor([[1, 2, 2], [1, 2, 4]]))
    none = PatchedImages(torch.zeros(0, 12), torch.zeros((0, 3), dtype=torch.int64))
    samples = [of([1, 9, 2, 9, 3], image=two), of([4, 5], image=none)]
    batch = PackSequences(image_token=9)(samples)
    assert batch["input_ids"].tolist() == [1, 9, 2, 9, 9, 3, 4, 5]
    assert batch["cu_seqlens"].tolist() == [0, 6, 8]


def test_placeholders_below_0() -> None:
    """As LLaVA has them; numbers of NumPy are numbers."""
    batch = PackSequences(image_token=np.int64(-200))([of([1, -200, 2], image=image(2, 4))])
    assert batch["input_ids"].tolist() == [1, -200, -200, 2]


def image(down: int, across: int) -> PatchedImages:
    return PatchedImages(torch.zeros(down * across, 12), torch.tensor([[1, down, across]]))


def of(ids: list[int], **more: Any) -> dict[str, Any]:
    return {"input_ids": torch.tensor(ids), **more}


@pytest.mark.parametrize(
    ("options", "samples", "message"),
    [
        ({}, [torch.zeros(3)], "takes samples that are dicts"),
        ({}, [{"tokens": torch.zeros(3)}], "token ids in 'input_ids'"),
        ({}, [of([1.5])], "token ids are integers of one dimension, not torch.float32"),  # type: ignore[list-item]
        ({"vocabulary": 5}, [of([1]), of([2, 7])], "row 1 has the token id 7; there are 5"),
        ({"vocabulary": 5}, [of([-1])], "row 0 has the token id -1"),
        (
            {"image_token": 9},
            [of([9], image=image(2, 2)), of([1], image=image(2, 2))],
            "1 placeholders of images in a batch that has 2 images: row 1 has 0",
        ),
        (
            {"image_token": 9},
            [of([9, 9], image=image(2, 2)), of([1], image=image(2, 2))],
            "2 placeholders of images in a batch that has 2 images: row 0 has 2, for 1 of its own",
        ),
        ({"image_token": 9}, [of([9])], "1 placeholders of images in a batch that has 0 images"),
        (
            {"image_token": 9, "max_tokens": 3},
            [of([1, 9], image=image(4, 4))],
            "row 0 has an image beyond max_tokens=3",
        ),
        ({"mask": ["m"]}, [of([1])], "mask names 'm', which samples do not have"),
        ({"mask": ["m"]}, [of([1, 2], m=torch.tensor([1]))], "mask: 'm' has not one value for each token"),
        ({"mask": ["m"]}, [of([1, 2], m="text")], "mask: 'm' is neither a number nor"),
        (
            {"mask": ["m"]},
            [of([1, 2], m=torch.zeros(2, 3))],
            "mask: 'm' has not one value for each token",
        ),
        ({"image_token": 9}, [of([9], a=image(2, 2), b=image(2, 2))], "patches of one field, not of a and b"),
        ({"image_token": 9, "merge": 4}, [of([9], image=image(2, 2))], "merge=4 does not divide the patches"),
        ({"image_token": 9}, [of([9], image=image(4, 5))], "merge=2 does not divide the patches"),
        ({}, [of([1, 2], labels=torch.tensor([7, 8]))], "makes 'labels' itself, and samples have a field"),
        ({}, [of([1, 2], position_ids=3)], "makes 'position_ids' itself"),
        ({"tokens": "t"}, [of([1, 2], t=torch.tensor([7, 8]))], "makes 'input_ids' itself"),
    ],
)
def test_samples_that_do_not_fit(options: dict[str, Any], samples: list[Any], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        PackSequences(**options)(samples)


@pytest.mark.parametrize(
    "options",
    [
        {"mask": "prompt"},
        {"merge": 0},
        {"vocabulary": True},
        {"max_tokens": 1.5},
        {"image_token": "x"},
        {"image_token": True},
        {"image_token": 1.5},
    ],
    ids=str,
)
def test_options_out_of_range(options: dict[str, Any]) -> None:
    with pytest.raises(ArgumentError, match=next(iter(options))):
        PackSequences(**options)
