"""`fastload run`: programs run as by `python`, with FastLoader under the name of torch's DataLoader."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import warm
from pictures import write_folder

import fastload

ROOT = Path(fastload.__file__).resolve().parents[1]
TESTS = Path(__file__).resolve().parents[1]
LOADER = """
import torch
from torch.utils.data import DataLoader, TensorDataset
data = TensorDataset(torch.arange(40.0).reshape(20, 2), torch.arange(20))
"""


class Programs:
    """A folder of programs, and ways to run them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.env = {
            key: value
            for key, value in os.environ.items()
            if key not in ("PYTHONPATH", "RANK", "FASTLOAD_RUN")
        }

    def write(self, name: str, text: str) -> Path:
        path = self.folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(textwrap.dedent(text))
        return path

    def command(self, *arguments: object, command_line: bool = False) -> list[str]:
        """The command that runs the copy of fastload under test, wherever the program's folder is."""
        module = "fastload" if command_line else "fastload.run"
        start = (
            f"import sys, runpy; sys.path.insert(0, {str(ROOT)!r}); runpy.run_module({module!r}, "
            "run_name='__main__', alter_sys=True)"
        )
        given = ["run", *arguments] if command_line else arguments
        return [sys.executable, "-c", start, *map(str, given)]

    def run(self, *arguments: object, **options: Any) -> subprocess.CompletedProcess[str]:
        command = self.command(*arguments, command_line=options.pop("command_line", False))
        return self.plain(command, **options)

    def warm(
        self, *arguments: object, env: dict[str, str], imports: Sequence[str] = ()
    ) -> subprocess.CompletedProcess[str]:
        """`python -m fastload.run` with these arguments, in an interpreter that has torch."""
        paths = os.pathsep.join(filter(None, [str(ROOT), env.get("PYTHONPATH")]))
        env = {**self.env, **env, "PYTHONPATH": paths}
        return warm.run(
            warm.RUN, *map(str, arguments), folder=self.folder, environment=env, imports=imports, timeout=200
        )

    def plain(self, command: list[str], **options: Any) -> subprocess.CompletedProcess[str]:
        env = {**self.env, **options.pop("env", {})}
        return subprocess.run(
            command,
            capture_output=True,
            text=True,
            check=False,
            cwd=self.folder,
            env=env,
            timeout=200,
            **options,
        )


@pytest.fixture
def programs(tmp_path: Path) -> Programs:
    return Programs(tmp_path)


def test_a_program_sees_what_python_shows_it(programs: Programs) -> None:
    """sys.argv, `__name__`, `__file__`, sys.path and the exit status are as under `python`; torch is not
    imported where the program does not, and options after PROGRAM are the program's."""
    path = programs.write(
        "sub/show.py",
        """
        import json, sys
        main = sys.modules["__main__"]
        print(json.dumps([sys.argv, __name__, main.__file__, sys.path, "torch" in sys.modules,
            str(main.__spec__)[:20]]))
        print("told", file=sys.stderr)
        sys.exit(7)
        """,
    )
    arguments = [str(path), "--quiet", "-m", "a b"]
    by_python = programs.plain([sys.executable, *arguments])
    for ours in (programs.run(*arguments), programs.run("-q", *arguments, command_line=True)):
        assert (
            (ours.returncode, ours.stdout, ours.stderr)
            == (7, by_python.stdout, by_python.stderr)
            == (7, by_python.stdout, "told\n")
        )
    as_module = [sys.executable, "-m", "sub.show", "--ray", "-x"]
    shown = programs.run("-m", "sub.show", "--ray", "-x", command_line=True)
    assert (shown.returncode, shown.stdout) == (7, programs.plain(as_module).stdout)


def test_tracebacks_and_signals(programs: Programs) -> None:
    """An exception's traceback has no frame but the program's, and Ctrl-C ends the process by the signal,
    as under `python`."""
    path = programs.write("fail.py", LOADER + "DataLoader(data)\nraise KeyError('gone')\n")
    ours, theirs = programs.run("-q", path), programs.plain([sys.executable, str(path)])
    assert (ours.returncode, ours.stderr) == (1, theirs.stderr)
    stopped = programs.write("stopped.py", "import signal\nsignal.raise_signal(signal.SIGINT)\n")
    ours = programs.run(stopped)
    assert ours.returncode == -signal.SIGINT
    frames = [
        f'  File "{stopped}", line 2, in <module>',
        "    signal.raise_signal(signal.SIGINT)",
        "KeyboardInterrupt",
    ]
    assert ours.stderr.splitlines()[1:] == frames


def test_the_name_gives_fastloader(programs: Programs) -> None:
    """Both modules' names give a FastLoader; batches are torch's; subclasses, isinstance, exact types,
    abstract bases and pickles hold; and the report counts the loaders."""
    path = programs.write(
        "train.py",
        LOADER
        + """
import abc, copy, pickle
import torch.utils.data.dataloader
from fastload import FastLoader
from fastload.loader import DataLoader as Torchs
assert torch.utils.data.dataloader.DataLoader is torch.utils.data.DataLoader is DataLoader is not Torchs
assert issubclass(DataLoader, FastLoader) and DataLoader.__name__ == "DataLoader"

class Marked(abc.ABC):
    @abc.abstractmethod
    def mark(self): ...

class Mine(DataLoader, Marked):
    def __init__(self, *given, **options):
        self.epoch = "mine"
        super().__init__(*given, **options)
    def __iter__(self):
        for batch in super().__iter__():
            yield self.mark(), batch
    def mark(self):
        return self.epoch

def batches(kind, **options):
    torch.manual_seed(3)
    return [labels.tolist() for _, labels in kind(data, 4, shuffle=True, **options)]

for workers in (0, 2):
    assert batches(DataLoader, num_workers=workers) == batches(Torchs, num_workers=workers)
mine = Mine(data, batch_size=5)
assert [mark for mark, _ in mine] == ["mine"] * 4
loader = DataLoader(data)
assert type(loader) is DataLoader and type(pickle.loads(pickle.dumps(loader))) is DataLoader
assert type(pickle.loads(pickle.dumps(mine))) is Mine and len(list(copy.copy(mine))) == 4
for each in (loader, mine, Torchs(data), FastLoader(data)):
    assert isinstance(each, DataLoader)
assert not isinstance(loader, Mine) and issubclass(Mine, DataLoader) and not isinstance(data, DataLoader)
DataLoader[int]
""",
    )
    done = programs.run(path)
    assert done.returncode == 0, done.stderr
    first, second = done.stderr.splitlines()
    assert first == "fastload run: 4 loaders: 3 in the calling process, 1 on worker processes"
    assert re.fullmatch(
        r"fastload run: 18 batches; the loop waited [\d.]+ s for them, \d+% of its [\d.]+ s", second
    ), second


def test_torchs_loader_runs_what_fastloader_refuses(programs: Programs) -> None:
    """Arguments that FastLoader refuses, at once or at iter(), run by torch's DataLoader, with one line a
    reason; a mistake has torch's exception; -W error breaks nothing; and such a loader pickles and counts as
    a DataLoader."""
    path = programs.write(
        "refused.py",
        LOADER
        + """
import pickle
def fails(make):
    try:
        make()
    except Exception as error:
        return type(error).__name__
for _ in range(2):
    loader = DataLoader(data, timeout=5)
assert fails(lambda: list(loader)) == "AssertionError"
assert [list(batch) for batch in DataLoader("abcd", batch_size=2)] == [["a", "b"], ["c", "d"]]
text = DataLoader("abcd", batch_size=2)
again = pickle.loads(pickle.dumps(text))
assert type(again) is DataLoader and [list(batch) for batch in again] == [["a", "b"], ["c", "d"]]
assert [list(batch) for batch in DataLoader("abcd", 2, num_workers=1)] == [["a", "b"], ["c", "d"]]
assert fails(lambda: DataLoader(data, batch_size=0)) == "ValueError" and fails(lambda: DataLoader(data,
    wrong=1)) == "TypeError"
text.set_epoch(3)
text.load_state_dict(text.state_dict())

class Odd(DataLoader):
    def _get_iterator(self):
        if "_fastload" in self.__dict__:
            from fastload.errors import ArgumentError
            raise ArgumentError("not this one")
        return super()._get_iterator()
assert len(list(Odd(data, batch_size=5))) == 4
""",
    )
    done = programs.run(path, env={"PYTHONWARNINGS": "error"})
    assert done.returncode == 0, done.stderr
    told = done.stderr.splitlines()
    assert told[:3] == [
        "fastload run: torch's DataLoader runs the loader of TensorDataset: timeout=5 bounds the "
        "wait for workers, and num_workers=0 has "
        "none: drop one of them",
        "fastload run: torch's DataLoader runs the loader of str: a path is a packed dataset for "
        "FastLoader only",
        "fastload run: torch's DataLoader runs the loader of TensorDataset: not this one",
    ]
    assert told[3] == "fastload run: 6 loaders: 6 by torch's DataLoader"
    assert len(told) == 4


@pytest.mark.long
def test_children_belong_to_the_run(programs: Programs) -> None:
    """Children of multiprocessing's spawn and forkserver, worker processes and other Python programs have the
    name too, with classes of the program's own; a sitecustomize of the user's is still imported, and a child
    whose environment is empty is left alone."""
    programs.write("mine/sitecustomize.py", "import sys\nsys.user_was_here = True\n")
    path = programs.write(
        "children.py",
        LOADER
        + """
import multiprocessing, subprocess, sys
class Mine(DataLoader):
    pass
class Deep(torch.utils.data.Dataset):
    def __len__(self):
        return 4
    def __getitem__(self, index):
        from torch.utils.data import DataLoader
        return int(DataLoader.__module__ == "fastload.run.stand_in")
def told(queue, loader):
    queue.put((Mine.__mro__[1].__module__, type(loader).__qualname__, len(list(loader)), sys.user_was_here,
        __name__))
if __name__ == "__main__":
    for method in ("spawn", "forkserver"):
        context = multiprocessing.get_context(method)
        queue = context.SimpleQueue()
        child = context.Process(target=told, args=(queue, Mine(data, batch_size=4)))
        child.start()
        assert queue.get() == ("fastload.run.stand_in", "Mine", 5, True, "__mp_main__")
        child.join()
        assert child.exitcode == 0
        assert torch.cat(list(DataLoader(Deep(), num_workers=1,
            multiprocessing_context=method))).tolist() == [1] * 4
    code = "from torch.utils.data import DataLoader; print(DataLoader.__module__)"
    names = [subprocess.run([sys.executable, "-c", code], env=env, capture_output=True,
        text=True).stdout.strip() for env in (None, {})]
    assert names == ["fastload.run.stand_in", "torch.utils.data.dataloader"], names
""",
    )
    done = programs.warm("--quiet", path, env={"PYTHONPATH": str(programs.folder / "mine")})
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    assert done.stderr == ""


def test_a_comparison_changes_nothing(programs: Programs) -> None:
    """--compare tells the ratio, once for each kind of loader: draws, order and the dataset's own count are
    as without it, and what cannot be compared without a trace says so."""
    path = programs.write(
        "compare.py",
        LOADER
        + """
import random
import numpy as np
class Counting(torch.utils.data.Dataset):
    asked = 0
    def __len__(self):
        return 40
    def __getitem__(self, index):
        self.asked += 1
        random.random(), np.random.rand()
        return torch.rand(2), index
class Stream(torch.utils.data.IterableDataset):
    def __iter__(self):
        return iter(range(6))
torch.manual_seed(0), random.seed(0), np.random.seed(0)
generator = torch.Generator().manual_seed(5)
drawn = []
for options in ({"num_workers": 2}, {"num_workers": 2}, {"num_workers": 0}, {"num_workers": 1,
    "generator": generator}):
    counting = Counting()
    drawn += [labels.tolist() for _, labels in DataLoader(counting, 4, shuffle=True, **options)]
    assert counting.asked == (0 if options["num_workers"] else 40)
assert len(list(DataLoader(Stream(), num_workers=1))) == 6
print(drawn, torch.rand(1), random.random(), np.random.rand(), torch.rand(1, generator=generator))
""",
    )
    ours, theirs = programs.run("--compare", 3, path), programs.plain([sys.executable, str(path)])
    assert (ours.returncode, ours.stdout) == (0, theirs.stdout), ours.stderr
    told = [line for line in ours.stderr.splitlines() if line.startswith("fastload run: the loader of ")]
    ratio = (
        r"3 batches each, start included: [\d.]+ s by FastLoader, [\d.]+ s by torch's DataLoader, [\d.]+ "
        r"times as fast"
    )
    for line, text in zip(
        told,
        (
            rf"Counting, {ratio}",
            r"Counting is not compared: both make samples in the calling process, where the dataset "
            r"may notice",
            rf"Counting, {ratio}",
            r"Stream is not compared: its IterableDataset would be used up",
        ),
        strict=True,
    ):
        assert re.fullmatch(f"fastload run: the loader of {text}", line), line


@pytest.mark.long
def test_image_folders_run_on_native_threads(programs: Programs) -> None:
    """A program over an ImageFolder runs on native threads, and can be compared."""
    pytest.importorskip("torchvision")
    write_folder(programs.folder / "photos", 24)
    path = programs.write(
        "images.py",
        """
        import torch
        import torchvision_ops
        import torchvision
        from torchvision.transforms import v2
        steps = v2.Compose([v2.PILToTensor(), v2.Resize(32), v2.CenterCrop(32), v2.ToDtype(torch.float32,
            scale=True)])
        photos = torchvision.datasets.ImageFolder("photos", steps)
        print(sum(len(labels) for _, labels in torch.utils.data.DataLoader(photos, batch_size=4,
            num_workers=2)))
        """,
    )
    done = programs.warm("--compare", 2, path, env={"PYTHONPATH": str(TESTS)}, imports=warm.TRAINING)
    assert (done.returncode, done.stdout) == (0, "24\n"), done.stderr
    compared, first, _ = [line for line in done.stderr.splitlines() if line.startswith("fastload run: ")]
    assert compared.startswith("fastload run: the loader of ImageFolder, 2 batches each")
    assert first == "fastload run: 1 loader: 1 on native threads"


@pytest.mark.long
def test_torchrun(programs: Programs) -> None:
    """Both ways of torchrun, and torchrun started by the run, give each rank FastLoader; the first rank
    reports."""
    path = programs.write(
        "ranks.py",
        LOADER
        + """
import json, os, sys
import torch.distributed as dist
from torch.utils.data import DistributedSampler
dist.init_process_group("gloo")
mine = torch.cat([labels for _, labels in DataLoader(data, 4, sampler=DistributedSampler(data,
    shuffle=False))])
everyone = [torch.empty_like(mine) for _ in range(dist.get_world_size())]
dist.all_gather(everyone, mine)
if dist.get_rank() == 0:
    print(json.dumps([DataLoader.__module__, sorted(torch.cat(everyone).tolist()), sys.argv[1:]]))
dist.destroy_process_group()
""",
    )
    torchrun, words = ["--standalone", "--nproc-per-node=2"], [path, "--lr", "1"]
    env = {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    of_torch = {"folder": programs.folder, "environment": {**programs.env, **env}}
    for run in (
        lambda: warm.run(warm.TORCHRUN, *torchrun, "-m", "fastload.run", *words, **of_torch),
        lambda: programs.warm("-m", "torch.distributed.run", *torchrun, *words, env=env),
    ):
        done = run()
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout) == ["fastload.run.stand_in", list(range(20)), ["--lr", "1"]]
        assert done.stderr.count("fastload run: 1 loader: 1 in the calling process") == 1, done.stderr


@pytest.mark.long
def test_libraries(programs: Programs) -> None:
    """timm's create_loader and its loader over epochs, torchdata's StatefulDataLoader, accelerate and
    Lightning work in a run."""
    for name in ("timm", "torchdata", "accelerate", "lightning"):
        pytest.importorskip(name)
    write_folder(programs.folder / "photos", 12)
    path = programs.write(
        "libraries.py",
        LOADER
        + """
import torchvision_ops
from accelerate import Accelerator
from timm.data import ImageDataset, create_loader
from torchdata.stateful_dataloader import StatefulDataLoader
import lightning

photos = ImageDataset("photos")
for options in ({}, {"use_multi_epochs_loader": True, "persistent_workers": True}):
    loader = create_loader(photos, (3, 32, 32), 4, is_training=True, num_workers=1, use_prefetcher=False,
        **options)
    assert isinstance(loader, DataLoader)
    for epoch in range(2):
        assert [tuple(images.shape) for images, _ in loader] == [(4, 3, 32, 32)] * 3
stateful = StatefulDataLoader(data, batch_size=4)
assert len(list(stateful)) == 5 and set(stateful.state_dict()) > {"_num_yielded"}
prepared = Accelerator(cpu=True).prepare(DataLoader(data, batch_size=4, shuffle=True))
assert len(list(prepared)) == 5

class Model(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer, self.seen = torch.nn.Linear(2, 1), 0
    def training_step(self, batch, index):
        self.seen += 1
        return self.layer(batch[0]).mean()
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.1)
model = Model()
quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False,
    "enable_model_summary": False}
lightning.Trainer(accelerator="cpu", max_epochs=2, **quiet).fit(model, DataLoader(data, batch_size=4,
    shuffle=True, num_workers=1))
assert model.seen == 10
""",
    )
    done = programs.warm(path, env={"PYTHONPATH": str(TESTS)}, imports=warm.TRAINING)
    assert done.returncode == 0, done.stderr
    assert "torch's DataLoader runs" not in done.stderr
    assert re.search(r"fastload run: \d loaders: ", done.stderr)


def test_the_environment_must_reach_the_program(programs: Programs) -> None:
    """An interpreter that ignores its environment is told so; starting costs a program without torch
    little."""
    done = subprocess.run(
        [sys.executable, "-I", *programs.command("x.py")[1:]], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert (
        done.stderr
        == "fastload run: Python's options -E, -I and -S hide the run from the program: leave them out\n"
    )
    path = programs.write("nothing.py", "")
    began = time.perf_counter()
    done = programs.run(path)
    assert time.perf_counter() - began < 20
    assert (done.returncode, done.stderr) == (0, "")
