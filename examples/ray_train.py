"""Training on several workers of Ray Train: a FastLoader in TorchTrainer's loop, where a DataLoader would be.

    fastload pack photos/train train.fl
    python examples/ray_train.py train.fl --workers 2

Each worker reads its own part of every epoch (shard="auto"); nothing has to be told of epochs or ranks. The
dataset must be where all nodes can read it: a shared folder, or a URL such as s3://bucket/train.fl.
Needs Ray Train: pip install 'ray[train]'.
"""

from __future__ import annotations

import argparse
from typing import Any


def train(config: dict[str, Any]) -> None:
    """The loop of one worker. Ray sends it there by pickle, which modules of torch do not go through: it
    imports what it needs."""
    import ray.train
    import torch
    from ray.train.torch import prepare_data_loader, prepare_model
    from torch import nn
    from torch.nn.functional import cross_entropy

    import fastload
    from fastload import transforms as T

    data = fastload.PackedDataset(
        config["data"], [T.RandomResizedCrop(config["size"]), T.RandomHorizontalFlip()]
    )
    loader = fastload.FastLoader(
        data, config["batch_size"], shuffle=True, shard="auto", seed=config["seed"], dtype=torch.float32
    )
    # Moves batches to the worker's device; it leaves the order to shard="auto".
    batches = prepare_data_loader(loader)
    torch.manual_seed(config["seed"])
    layers = (
        nn.Conv2d(3, 32, 7, 4),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(32, len(data.classes)),
    )
    model = prepare_model(nn.Sequential(*layers))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for epoch in range(config["epochs"]):
        total, count = 0.0, 0
        for images, labels in batches:
            loss = cross_entropy(model(images / 255), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total, count = total + float(loss) * len(labels), count + len(labels)
        ray.train.report({"epoch": epoch, "loss": total / count, "samples": count})
        print(
            f"worker {ray.train.get_context().get_world_rank()}, epoch {epoch}: {count} samples, "
            f"loss {total / count:.3f}",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", help="packed dataset")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--storage", help="folder of Ray Train's reports")
    args = parser.parse_args()

    import torch
    from ray.train import RunConfig, ScalingConfig
    from ray.train.torch import TorchConfig, TorchTrainer

    gpu = torch.cuda.is_available()
    config = {name: getattr(args, name) for name in ("data", "epochs", "batch_size", "size", "seed")}
    TorchTrainer(
        train,
        train_loop_config=config,
        torch_config=TorchConfig(backend="nccl" if gpu else "gloo"),
        scaling_config=ScalingConfig(num_workers=args.workers, use_gpu=gpu),
        run_config=RunConfig(storage_path=args.storage),
    ).fit()


if __name__ == "__main__":
    main()
