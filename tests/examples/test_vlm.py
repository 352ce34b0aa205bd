"""examples/vlm.py: losses of packed sequences are those of one document a row; a run that is stopped goes on
with other ranks, with the losses that it would have had."""

from __future__ import annotations

import argparse
import json
import os
import re
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
import warm
from pictures import photo
from recipe_runs import printed_by_ranks
from torch import Tensor

EXAMPLE = Path(__file__).parents[2] / "examples" / "vlm.py"
WORDS = ("train", "documents.fl", "--checkpoint", "run.pt", "--max-tokens", "200", "--every", "1")


@pytest.fixture(scope="module")
def vlm() -> ModuleType:
    """The example as a module."""
    pytest.importorskip("tokenizers")
    import importlib.util

    spec = importlib.util.spec_from_file_location("vlm", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def documents(vlm: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with 40 captioned photographs, packed as the example does it."""
    root = tmp_path_factory.mktemp("documents")
    (root / "images").mkdir()
    lines = []
    for number in range(40):
        photo(number, 80 + 7 * number % 120, 90 + 13 * number % 150).save(root / "images" / f"{number}.jpg")
        asked = f"<image>\nWhat is shown, in {'some ' * (number % 9)}words?"
        said = f"Picture {' and '.join(map(str, range(number % 11 + 1)))}."
        turns = [{"from": "human", "value": asked}, {"from": "gpt", "value": said}]
        lines.append(json.dumps({"image": f"{number}.jpg", "conversations": turns}))
    (root / "captions.jsonl").write_text("\n".join(lines))
    vlm.fastload.pack(vlm.Captions(root / "captions.jsonl", root / "images"), root / "documents.fl")
    return root


def one_a_row(vlm: ModuleType, model: torch.nn.Module, batch: dict[str, Any], placeholder: int) -> Tensor:
    """The losses of the same sequences, each in a row of its own that is filled up."""
    seams = batch["cu_seqlens"].tolist()
    spans = [slice(start, stop) for start, stop in pairwise(seams)]
    length = batch["max_seqlen"]

    def rows(values: Tensor, fill: int) -> Tensor:
        out = torch.full((len(spans), *values.shape[:-1], length), fill, dtype=values.dtype)
        for row, span in enumerate(spans):
            out[row, ..., : span.stop - span.start] = values[..., span]
        return out

    ids, labels = rows(batch["input_ids"], 0), rows(batch["labels"], -100)
    there = rows(torch.ones_like(batch["input_ids"]), 0).bool()
    mask = torch.ones(length, length, dtype=torch.bool).tril() & (
        there[:, None, None, :] | torch.eye(length).bool()
    )
    images = batch["pixel_values"], batch["image_grid_thw"]
    is_image = (ids == placeholder) & there
    return vlm.losses(model(ids, rows(batch["position_ids"], 0), mask, is_image, *images), labels)


def test_packed_losses_are_those_of_one_document_a_row(
    vlm: ModuleType, documents: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every token's loss within 1e-5; each document once, its images expanded, bins nearly full."""
    monkeypatch.chdir(documents)
    loader, placeholder = vlm.bins_of(
        argparse.Namespace(data="documents.fl", max_tokens=200, max_pixels=112 * 112, bins=2)
    )
    torch.manual_seed(0)
    model, count = vlm.VisionLanguage(), 0
    with loader, torch.no_grad():
        for batch in loader:
            packed = vlm.losses_of_bin(model, batch, placeholder)
            torch.testing.assert_close(packed, one_a_row(vlm, model, batch, placeholder), atol=1e-5, rtol=0)
            assert batch["cu_seqlens"][-1] <= 200
            assert (batch["input_ids"] == placeholder).sum() == batch["image_grid_thw"].prod(dim=1).sum() // 4
            count += len(batch["image_grid_thw"])
    assert count == 40


def told(printed: str) -> list[tuple[str, float]]:
    return [(step, float(loss)) for step, loss in re.findall(r"(epoch \d, step \d+): loss ([\d.]+)", printed)]


@pytest.mark.long
@pytest.mark.parametrize("ranks", [1, 2])
def test_resumed_in_the_middle(ranks: int, documents: Path) -> None:
    """Two ranks stop after two steps; as many, or one, go on, and print the losses of a whole run of two."""
    (documents / "run.pt").unlink(missing_ok=True)
    whole = told(printed_by_ranks(documents, 2, EXAMPLE.name, *WORDS, "--epochs", "2"))
    (documents / "run.pt").unlink()
    path = os.pathsep.join([str(EXAMPLE.parents[1]), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", "PYTHONPATH": path}
    words = ("--standalone", "--nproc-per-node=2", EXAMPLE, *WORDS, "--stop-after", "2")
    begun = warm.run(warm.TORCHRUN, *words, folder=documents, environment=environment)
    assert begun.returncode == 0, begun.stdout + begun.stderr
    rest = told(printed_by_ranks(documents, ranks, EXAMPLE.name, *WORDS, "--epochs", "2"))
    found = told(begun.stdout) + rest
    assert [step for step, _ in found] == [step for step, _ in whole]
    assert max(abs(mine - theirs) for (_, mine), (_, theirs) in zip(found, whole, strict=True)) <= 1e-5
