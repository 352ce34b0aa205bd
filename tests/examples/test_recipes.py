"""The recipes of examples/, by the commands that docs/index.md gives, on small photographs whose class is
their tint."""

from __future__ import annotations

import csv
import math
import re
from pathlib import Path

import numpy as np
import pytest
import torch
import warm
from extras import needed
from pictures import photo
from PIL import Image
from recipe_runs import EXAMPLES, IMPORTS, PROGRAM, environment, printed, printed_by_ranks

from fastload import pack

needed("lightning", "timm", "torchvision")

ROOT = EXAMPLES.parent
CLASSES, TRAIN, VAL, BATCH = 3, 48, 11, 8
TINY = [
    *(
        "--model test_resnet --size 32 --val-size 32 --epochs 3 --warmup 0 --lr 4 --print-every 1 "
        "--batch-size"
    ).split(),
    str(BATCH),
]


def write_tinted(root: Path, count: int, first: int) -> Path:
    """An ImageFolder of `count` JPEGs of mixed sizes; one of the three colours stands out in each class."""
    for i in range(count):
        pixels = np.asarray(photo(first + i, 48 + i % 9, 56 + i % 7)).astype(np.float32)
        pixels *= [1.0 if channel == i % CLASSES else 0.4 for channel in range(3)]
        folder = root / f"class{i % CLASSES}"
        folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels.astype(np.uint8)).save(folder / f"{i:04d}.jpg", quality=92)
    return root


@pytest.fixture(scope="session")
def tinted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with train and val, as ImageFolders of photographs that a network tells apart in a few
    steps."""
    root = tmp_path_factory.mktemp("tinted")
    write_tinted(root / "train", TRAIN, 0)
    write_tinted(root / "val", VAL, 1000)
    return root


@pytest.fixture
def here(tinted: Path, tmp_path: Path) -> Path:
    """A folder with train.fl and val.fl, packed as recipes say by default."""
    for name in ("train", "val"):
        pack(tinted / name, tmp_path / f"{name}.fl")
    return tmp_path


def commands() -> dict[str, str]:
    """Of the first page: the command by its beginning, `python` or `torchrun`, and the script's name."""
    found = re.findall(
        r"`((python|torchrun)[^`]* (?:examples/)(\w+)\.py [^`]*)`", (ROOT / "docs" / "index.md").read_text()
    )
    return {f"{launcher} {name}": command for command, launcher, name in found}


def words_of(command: str) -> tuple[str, str, list[str]]:
    """The launcher, script and arguments of one of the page's commands."""
    launcher, _, arguments = commands()[command].partition("examples/")
    script, *words = arguments.split()
    return launcher, script, words


def run(folder: Path, command: str, *more: str, imports: tuple[str, ...] = IMPORTS) -> str:
    """Runs one of the page's commands in a folder, with more options; what it printed. torchrun gets two
    processes."""
    launcher, script, words = words_of(command)
    words += more
    if "torchrun" not in launcher:
        return printed(folder, script, *words, imports=imports)
    torchrun = (warm.TORCHRUN, "--standalone", "--nproc-per-node=2", PROGRAM, EXAMPLES / script)
    done = warm.run(*torchrun, *words, folder=folder, environment=environment())
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout


def numbers(name: str, text: str) -> list[float]:
    """What follows that word, line by line; all of it finite."""
    found = [float(value) for value in re.findall(rf"{name} ([-+.\w]+)", text)]
    assert found
    assert all(map(math.isfinite, found)), text
    return found


def by_step(text: str) -> dict[int, str]:
    """imagenet.py's lines, by step; each is printed once, over all ranks."""
    lines = re.findall(r"^epoch \d+ step (\d+)/.*$", text, re.MULTILINE)
    assert len(lines) == len(set(lines))
    return {
        int(found[1]): found[0] for found in re.finditer(r"^epoch \d+ step (\d+)/.*$", text, re.MULTILINE)
    }


def test_every_script_is_on_a_page() -> None:
    """The table has commands of scripts that exist; those of other topics are on the page of theirs."""
    # They are the Makefile's.
    scripts = {path.stem for path in EXAMPLES.glob("*.py")} - {
        "demo",
        "demo_remote",
    }
    recipes = {command.split()[1] for command in commands()}
    assert len(recipes) == 6
    assert recipes < scripts
    pages = "".join(page.read_text() for page in (ROOT / "docs" / "guide").glob("*.md"))
    assert {name for name in scripts - recipes if f"examples/{name}.py" not in pages} == set()


def check_imagenet(text: str, steps: int) -> None:
    """It took these steps, and evaluated three times on every image once, with success."""
    assert list(by_step(text)) == list(range(1, steps + 1))
    assert len(numbers("loss", text)) == steps
    right = [share * VAL / 100 for share in numbers("accuracy", text)]
    assert len(right) == 3
    assert all(abs(count - round(count)) < 0.01 for count in right), (
        "a share of other than the images there are"
    )
    assert right[-1] > VAL / CLASSES + 2


@pytest.mark.long
def test_imagenet(here: Path) -> None:
    """In one process, by the other policy and in float32."""
    text = run(here, "python imagenet", *TINY, "--augment", "rand", "--amp", "none")
    check_imagenet(text, 3 * TRAIN // BATCH)
    assert set(torch.load(here / "checkpoint.pt", weights_only=True)) == {
        "model",
        "optimizer",
        "schedule",
        "scaler",
        "loader",
    }


@pytest.mark.long
def test_imagenet_on_two_ranks_resumes(here: Path) -> None:
    """Under torchrun, in bfloat16; a run resumed in mid-epoch takes the very same steps, with the same losses
    to the last digit: batches, weights and learning rates are the same on both ranks. The second run has no
    torchrun, which would import all frameworks twice."""
    each = TRAIN // BATCH // 2
    saved = 2 * each - 1
    text = run(here, "torchrun imagenet", *TINY, "--save-every", str(saved), "--checkpoint", "at{step}.pt")
    check_imagenet(text, 3 * each)
    _, script, words = words_of("torchrun imagenet")
    resumed = by_step(printed_by_ranks(here, 2, script, *words, *TINY, "--resume", f"at{saved}.pt"))
    assert resumed == {step: line for step, line in by_step(text).items() if step > saved}


@pytest.mark.long
def test_cifar(tinted: Path, tmp_path: Path) -> None:
    """From shards of raw pixels it learns to tell the tints apart."""
    for name in ("train", "val"):
        pack(tinted / name, tmp_path / f"{name}.fl", encode="raw")
    text = run(tmp_path, "python cifar", "--epochs", "4", "--batch-size", str(BATCH), "--width", "8")
    losses = numbers("loss", text)
    assert len(losses) == 4
    assert losses[-1] < losses[0]
    assert numbers("accuracy", text)[-1] > 60


@pytest.mark.long
def test_finetune_timm(here: Path) -> None:
    """From random weights, with what timm says of the model; the saved weights load into timm's model."""
    import timm

    command = [
        "--model",
        "test_resnet",
        "--epochs",
        "2",
        "--batch-size",
        str(BATCH),
        "--lr",
        "0.01",
        "--head-lr",
        "0.01",
    ]
    text = run(here, "python finetune_timm", *command)
    config = timm.data.resolve_model_data_config(timm.create_model("test_resnet"))
    assert f"input_size {config['input_size']}" in text
    assert f"mean {config['mean']}, std {config['std']}" in text
    losses = numbers("loss", text)
    assert len(losses) == 2
    assert losses[-1] < losses[0]
    assert numbers("accuracy", text)[-1] > 60
    model = timm.create_model("test_resnet", num_classes=CLASSES, checkpoint_path=str(here / "best.pt"))
    assert all(torch.isfinite(each).all() for each in model.state_dict().values())


def lightning_losses(folder: Path, version: int) -> dict[int, float]:
    """By step, as Lightning logged them."""
    with (folder / f"checkpoints/lightning_logs/version_{version}/metrics.csv").open() as file:
        return {int(row["step"]): float(row["loss"]) for row in csv.DictReader(file) if row["loss"]}


@pytest.mark.long
def test_lightning(here: Path) -> None:
    """Trainer.fit takes every step, and resumed from a checkpoint of mid-epoch it takes the same ones
    again."""
    imports = (*IMPORTS, "lightning")
    options = [
        "--model",
        "shufflenet_v2_x0_5",
        "--size",
        "32",
        "--batch-size",
        str(BATCH),
        "--epochs",
        "2",
        "--log-every",
        "1",
        "--save-every",
        "8",
    ]
    run(here, "python lightning_module", *options, imports=imports)
    whole = lightning_losses(here, 0)
    assert list(whole) == list(range(2 * TRAIN // BATCH))
    assert all(map(math.isfinite, whole.values()))
    run(here, "python lightning_module", *options, "--resume", "checkpoints/last.ckpt", imports=imports)
    assert lightning_losses(here, 1) == {step: loss for step, loss in whole.items() if step >= 8}
