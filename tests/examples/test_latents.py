"""examples/latents.py computes latents once, as a column, and adds those of new images."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from pictures import write_folder
from recipe_runs import printed

from fastload import PackedDataset, pack

WORDS = ("latents.py", "train.fl", "--size", "64", "--batch-size", "8")


@pytest.mark.long
def test_latents_are_a_column(tmp_path: Path) -> None:
    """Made in the first run, found in the second; new images come with theirs."""
    pack(write_folder(tmp_path / "images", 24), tmp_path / "train.fl")
    write_folder(tmp_path / "more", 9)
    first = printed(tmp_path, *WORDS)
    assert re.findall(r"epoch (\d): 24 latents, loss \d+\.\d+", first) == ["0", "1"]
    before = PackedDataset(tmp_path / "train.fl", fields=("latent",))
    assert before[3]["latent"].shape == (4, 8, 8)
    assert printed(tmp_path, *WORDS) == first
    assert "epoch 0: 33 latents" in printed(tmp_path, *WORDS, "--append", "more")
    after = PackedDataset(tmp_path / "train.fl", fields=("latent",))
    assert len(after) == 33
    assert np.array_equal(after[3]["latent"], before[3]["latent"])
