"""What a state holds, when it may be taken and loaded, and which states are refused."""

from __future__ import annotations

import pickle
import signal
from pathlib import Path
from typing import Any

import pytest
import warm
from resume_helpers import COUNT, Numbers, flat, plain, resume, scattered, seeded, through_json, trained

from fastload import FastLoader
from fastload.errors import ArgumentError

# More workers than this machine's CPUs.
pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create")


def test_where_a_state_stands() -> None:
    """Before an epoch, in it, after a loop was left, at its end with and without StopIteration: a state
    says what comes next."""
    loader = FastLoader(Numbers(), batch_size=4)

    def stands() -> tuple[int, int, int]:
        state = through_json(loader.state_dict())
        return state["epoch"], state["batches"], state["samples"]

    assert stands() == (0, 0, 0)
    batches = iter(loader)
    assert stands() == (0, 0, 0)
    next(batches)
    assert stands() == (0, 1, 4)
    del batches
    assert stands() == (0, 1, 4)  # the loop was left
    batches = iter(loader)
    assert stands() == (1, 0, 0)
    for _ in range(6):
        next(batches)
    assert stands() == (1, 6, 23)  # StopIteration was not seen: the epoch has still to end
    assert list(batches) == []
    assert stands() == (2, 0, 0)
    loader.set_epoch(9)
    assert stands() == (9, 0, 0)


def test_prefetched_batches_do_not_count() -> None:
    """Batches that workers have finished, and nobody had, are still to come."""
    loader = FastLoader(Numbers(), batch_size=4, num_workers=2, prefetch_factor=4)
    batches = iter(loader)
    next(batches)
    next(batches)
    assert loader.state_dict()["batches"] == 2
    assert loader.state_dict()["samples"] == 8
    del batches
    loader.close()


def test_state_of_a_resumed_loader() -> None:
    """A resumed loop can be interrupted in turn, before its first batch and after."""
    seeded()
    whole = trained(FastLoader(Numbers(), batch_size=2, shuffle=True))
    seeded()
    loader = FastLoader(Numbers(), batch_size=2, shuffle=True)
    got = trained(loader, 2)
    for steps in (1, 0, 3, 4):
        state = through_json(loader.state_dict())
        scattered()
        loader = FastLoader(Numbers(), batch_size=2, shuffle=True)
        loader.load_state_dict(state)
        loader = pickle.loads(pickle.dumps(loader))
        got += trained(loader, steps)
    assert got + trained(resume(loader, FastLoader(Numbers(), batch_size=2, shuffle=True))) == whole


def test_load_into_a_loader_in_use() -> None:
    """A loader that iterates, or whose persistent workers live, can go back to a state."""
    seeded()
    loader = FastLoader(Numbers(), batch_size=4, shuffle=True, num_workers=1, persistent_workers=True)
    batches = iter(loader)
    next(batches)
    state = through_json(loader.state_dict())
    rest = [plain(batch) for batch in batches]
    second = trained(loader)
    loader.load_state_dict(state)
    assert trained(loader) == rest
    assert sorted(flat(second)) == list(range(COUNT))
    loader.close()


class Failing(Numbers):
    def __getitem__(self, index: int) -> int:
        if index == 5:
            raise KeyError(index)
        return index


@pytest.mark.parametrize("workers", [0, 2])
def test_a_failed_batch(workers: int) -> None:
    """A batch that failed last is tried again by a resume; one that the loop went past is not."""
    loader = FastLoader(Failing(), batch_size=4, num_workers=workers)
    batches = iter(loader)
    next(batches)
    with pytest.raises(KeyError):
        next(batches)
    tried = through_json(loader.state_dict())
    assert plain(next(batches)) == [8, 9, 10, 11]
    passed = through_json(loader.state_dict())
    loader.close()
    assert trained(resumed_with(tried))[0] == [4, 5, 6, 7]
    assert trained(resumed_with(passed))[0] == [12, 13, 14, 15]


def resumed_with(state: dict[str, Any]) -> Any:
    loader = FastLoader(Numbers(), batch_size=4)
    loader.load_state_dict(state)
    return loader


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"version": 3}, "version 3"),
        ({"version": None}, "version None"),
        ({"batches": "3"}, "batches is '3'"),
        ({"position": -1}, "position is -1"),
        ({"start": {"default": "?"}}, "generators"),
        ({"start": {"numpy": []}}, "generators"),
        ({"start": {"default": "AAAA"}}, "generators"),
        ({"now": {"random": [3, "AAAA", None]}}, "generators"),
        ({"start": {"random": [3]}}, "generators"),
        ({"beyond": [None]}, "beyond"),
        ({"replicas": [3]}, "replicas"),
        ({"turn": 7}, "turn is 7"),
        ({"batch_size": 5}, "batch_size 5, this loader has 4"),
        ({"drop_last": True}, "drop_last True, this loader has False"),
        ({"length": 60000}, f"dataset length 60000, this loader has {COUNT}"),
        ({"seed": 3}, "seed 3, this loader has None"),
        ({"kind": "iterable"}, "kind 'iterable', this loader has 'map'"),
        ({"sampler": {"name": "RandomSampler"}}, "RandomSampler, this loader has a SequentialSampler"),
    ],
)
def test_states_that_do_not_fit(change: dict[str, Any], message: str) -> None:
    """A state of another version, damaged, or of another loader's settings is refused by what is wrong,
    and changes nothing."""
    loader = FastLoader(Numbers(), batch_size=4)
    trained(loader, 2)
    state = through_json(loader.state_dict())
    other = FastLoader(Numbers(), batch_size=4)
    with pytest.raises(ArgumentError, match=message):
        other.load_state_dict({**state, **change})
    assert len(trained(other)) == 6
    for name in state.keys() - {"version"}:
        with pytest.raises(ArgumentError, match=name):
            other.load_state_dict({key: value for key, value in state.items() if key != name})


def test_states_of_others() -> None:
    """What is no state of a FastLoader is refused; an empty one asks for nothing, as in torchdata."""
    loader = FastLoader(Numbers(), batch_size=4)
    for wrong in ({"_snapshot": {}}, [1], "state"):
        with pytest.raises(ArgumentError, match="no state of a FastLoader"):
            loader.load_state_dict(wrong)
    loader.load_state_dict({})
    assert len(trained(loader)) == 6


def test_settings_may_change_between_epochs() -> None:
    """At an epoch's end nothing depends on the batch size, nor on the dataset's length."""
    loader = FastLoader(Numbers(), batch_size=4)
    trained(loader)
    other = resume(loader, FastLoader(Numbers(8), batch_size=3))
    assert other.epoch == 1
    assert len(trained(other)) == 3


KILLED = """
import json, os, signal, sys
import torch
from fastload import FastLoader
from torch.utils.data import Dataset

class Numbers(Dataset):
    def __len__(self): return 40
    def __getitem__(self, index): return index

path, workers, kill_at = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
torch.manual_seed(1 if not os.path.exists(path) else 2)
loader = FastLoader(Numbers(), batch_size=3, shuffle=True, num_workers=workers)
if os.path.exists(path):
    with open(path) as file:
        loader.load_state_dict(json.load(file))
step = 0
while loader.epoch < 3:
    for batch in loader:
        print(*batch.tolist(), flush=True)
        with open(path + ".part", "w") as file:
            json.dump(loader.state_dict(), file)
        os.rename(path + ".part", path)
        step += 1
        if step == kill_at:
            os.kill(os.getpid(), signal.SIGKILL)
"""


def test_killed_and_started_again(tmp_path: Path) -> None:
    """A program that saves the state after each step, is killed, and is started anew with other workers,
    trains as if never killed."""

    def run(name: str, workers: int, kill_at: int) -> tuple[int, str]:
        done = warm.run(KILLED, tmp_path / name, str(workers), str(kill_at), error=True)
        assert "Traceback" not in done.stderr, done.stderr
        return done.returncode, done.stdout

    code, whole = run("whole", 0, -1)
    assert code == 0
    got = ""
    for workers, kill_at, ends in ((2, 19, -signal.SIGKILL), (0, -1, 0)):
        code, text = run("killed", workers, kill_at)
        assert code == ends
        got += text
    assert got == whole
