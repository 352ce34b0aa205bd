"""Trains a small vision-language model on documents of an image and a text, several in one row, on any
number of ranks; a stopped run goes on in the middle of an epoch.

    python examples/vlm.py pack captions.jsonl IMAGES documents.fl
    torchrun --nproc_per_node 2 examples/vlm.py train documents.fl --checkpoint run.pt

A line of captions.jsonl has LLaVA's form: {"image": "cat.jpg", "conversations": [{"from": "human", "value":
"<image>\\nWhat is it?"}, {"from": "gpt", "value": "A cat."}]}. Tokens are made once, by the tokenizer in
examples/vlm_tokenizer.json, of 1,024 words (needs `pip install tokenizers`). Bins are planned by stored
sizes: no image is opened for it.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import Dataset

import fastload
from fastload import FastLoader, PackedDataset, PackSequences, TokenBatches
from fastload import transforms as T

TOKENIZER = Path(__file__).with_name("vlm_tokenizer.json")
PATCH, MERGE, TEMPORAL = 14, 2, 1
WIDTH, HEADS = 64, 4


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    pack = commands.add_parser("pack", help="make a dataset of captions and images")
    pack.add_argument("captions", type=Path, help="JSON lines in LLaVA's form")
    pack.add_argument("images", type=Path, help="the folder that their images lie in")
    pack.add_argument("out", help="the dataset to make")
    train = commands.add_parser("train")
    train.add_argument("data", help="a dataset that `pack` made: a folder or a URL")
    train.add_argument("--checkpoint", type=Path, required=True, help="saves the run, and resumes it")
    train.add_argument("--every", type=int, default=10, help="steps between two checkpoints")
    train.add_argument("--epochs", type=int, default=1)
    train.add_argument("--max-tokens", type=int, default=512, help="of a bin")
    train.add_argument("--max-pixels", type=int, default=112 * 112, help="of an image")
    train.add_argument("--bins", type=int, default=4, help="of a step, on all ranks together")
    train.add_argument("--stop-after", type=int, help="leave after that many steps, as a lost machine does")
    return parser.parse_args()


# ---- the data


class Captions(Dataset[dict[str, Any]]):
    """Documents as `fastload.pack` takes them: an image's path, token ids, and the number of the prompt's."""

    def __init__(self, captions: Path, images: Path) -> None:
        from tokenizers import Tokenizer

        self._tokenizer, self._images = Tokenizer.from_file(str(TOKENIZER)), images
        self._lines = captions.read_text().splitlines()

    def __len__(self) -> int:
        return len(self._lines)

    def __getitem__(self, index: int) -> dict[str, Any]:
        line = json.loads(self._lines[index])
        said = [turn["value"] for turn in line["conversations"]]
        prompt, answer = (self._tokenizer.encode(text).ids for text in (said[0] + "\n", "\n".join(said[1:])))
        return {
            "image": self._images / line["image"],
            "input_ids": torch.tensor(prompt + answer),
            "prompt": len(prompt),
        }


def bins_of(args: argparse.Namespace) -> tuple[FastLoader[Any], int]:
    """The loader of this rank's bins, and the id of an image's placeholder."""
    from tokenizers import Tokenizer

    placeholder = Tokenizer.from_file(str(TOKENIZER)).token_to_id("<image>")
    patches = T.Patches(PATCH, MERGE, TEMPORAL, min_pixels=56 * 56, max_pixels=args.max_pixels)
    data = PackedDataset(args.data, [patches, T.Normalize((0.5,), (0.5,))])
    bins = TokenBatches(data, args.max_tokens, text="input_ids", bins=args.bins, seed=0)
    collate = PackSequences(image_token=placeholder, merge=MERGE, mask=("prompt",), mrope=True)
    options = {"batch_sampler": bins, "collate_fn": collate, "num_workers": 1}
    return FastLoader(data, shard="auto", seed=0, **options), placeholder


# ---- the model


class Block(nn.Module):
    """Attention and two layers, for rows (B, L, WIDTH) under a mask (B, 1, L, L)."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.mixed, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.wide = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, rows: Tensor, mask: Tensor) -> Tensor:
        batch, length, _ = rows.shape
        heads = self.mixed(self.first(rows)).view(batch, length, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        found = functional.scaled_dot_product_attention(*heads, attn_mask=mask)
        rows = rows + self.out(found.transpose(1, 2).reshape(batch, length, WIDTH))
        return rows + self.wide(self.second(rows))


def blocks_of(lengths: Tensor) -> Tensor:
    """The mask of runs of these lengths that see themselves alone: (1, 1, L, L)."""
    run = torch.arange(len(lengths)).repeat_interleave(lengths)
    return (run[:, None] == run)[None, None]


def waves(positions: Tensor) -> Tensor:
    """Sines and cosines of positions (..., 3, L), summed over the three: (..., L, WIDTH)."""
    rates = torch.logspace(0, -3, WIDTH // 2)
    angles = positions.unsqueeze(-1) * rates
    return torch.cat([angles.sin(), angles.cos()], dim=-1).sum(dim=-3)


class VisionLanguage(nn.Module):
    """A vision transformer over the patches of each image, and a text model over tokens and images."""

    def __init__(self, vocabulary: int = 1024) -> None:
        super().__init__()
        self.patches = nn.Linear(3 * TEMPORAL * PATCH * PATCH, WIDTH)
        self.vision, self.merged = Block(), nn.Linear(MERGE * MERGE * WIDTH, WIDTH)
        self.words, self.text = nn.Embedding(vocabulary, WIDTH), nn.ModuleList([Block(), Block()])
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, vocabulary)

    def images(self, pixels: Tensor, grids: Tensor) -> Tensor:
        """A vector for each of the images' tokens, (T, WIDTH)."""
        seen = self.vision(self.patches(pixels)[None], blocks_of(grids.prod(dim=1)))[0]
        return self.merged(seen.view(-1, MERGE * MERGE * WIDTH))

    def forward(
        self, ids: Tensor, positions: Tensor, mask: Tensor, is_image: Tensor, pixels: Tensor, grids: Tensor
    ) -> Tensor:
        """Scores (B, L, vocabulary) of tokens (B, L) at positions (B, 3, L), under a mask (B, 1, L, L)."""
        images = self.images(pixels, grids)
        rows = self.words(ids).masked_scatter(is_image[..., None], images) + waves(positions)
        for block in self.text:
            rows = block(rows, mask)
        return self.head(self.norm(rows))


def losses(scores: Tensor, labels: Tensor) -> Tensor:
    """The loss of each token that has a label, of rows (B, L)."""
    kept = labels[:, 1:] != -100
    return functional.cross_entropy(scores[:, :-1][kept], labels[:, 1:][kept], reduction="none")


def losses_of_bin(model: nn.Module, batch: dict[str, Any], placeholder: int) -> Tensor:
    """The losses of a bin: one row, in which each sequence sees itself alone."""
    ids = batch["input_ids"]
    mask = blocks_of(batch["cu_seqlens"].diff()) & torch.ones(len(ids), len(ids), dtype=torch.bool).tril()
    images = batch["pixel_values"], batch["image_grid_thw"]
    scores = model(ids[None], batch["position_ids"][None], mask, (ids == placeholder)[None], *images)
    return losses(scores, batch["labels"][None])


# ---- the training


def save(path: Path, **parts: Any) -> None:
    """Writes a checkpoint, whole or not at all."""
    beside = path.with_name(path.name + ".part")
    torch.save(parts, beside)
    os.replace(beside, path)


def steps_of(loader: FastLoader[Any], bins: int) -> Iterator[list[dict[str, Any]]]:
    """The bins of this rank, step by step."""
    step = []
    for batch in loader:
        step.append(batch)
        if len(step) == bins:
            yield step
            step = []


def train(args: argparse.Namespace) -> None:
    """The epochs of one rank. A step is the same on any number of ranks that divides its bins."""
    torch.manual_seed(0)
    loader, placeholder = bins_of(args)
    model = DistributedDataParallel(VisionLanguage())
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    step = 0
    if args.checkpoint.exists():
        saved = torch.load(args.checkpoint, weights_only=True)
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        loader.load_state_dict(saved["loader"])  # the same on every rank, and for any number of them
        step = saved["step"]
    own = args.bins // dist.get_world_size()
    with loader:
        while loader.epoch < args.epochs:
            epoch = loader.epoch
            for batches in steps_of(loader, own):
                optimizer.zero_grad()
                loss = torch.zeros(())
                for batch in batches:
                    part = losses_of_bin(model, batch, placeholder).mean() / own
                    part.backward()
                    loss += part.detach()
                optimizer.step()
                step += 1
                dist.all_reduce(loss)
                if dist.get_rank() == 0:
                    mean = loss.item() / dist.get_world_size()
                    print(f"epoch {epoch}, step {step}: loss {mean:.6f}", flush=True)
                    if step % args.every == 0:
                        parts = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
                        save(args.checkpoint, **parts, loader=loader.state_dict(), step=step)
                if step == args.stop_after:
                    dist.barrier()
                    os._exit(0)


def main() -> None:
    args = arguments()
    if args.command == "pack":
        fastload.pack(Captions(args.captions, args.images), args.out)
        return
    dist.init_process_group("gloo", timeout=timedelta(seconds=300))
    train(args)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
