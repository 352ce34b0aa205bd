"""DataLoader: the stand-in for torch's class of that name in a drop-in run."""

from __future__ import annotations

import inspect
import os
from abc import ABCMeta
from collections.abc import Iterator
from typing import Any

from torch.utils.data import DataLoader as TorchLoader
from typing_extensions import TypeVar

from fastload.engines.iterator import uncompiled
from fastload.engines.settings import SHOWN, Arguments
from fastload.errors import ArgumentError, FastloadError
from fastload.loader import FastLoader
from fastload.run.compare import compared
from fastload.run.order import TuneOrder
from fastload.run.report import NOTED, report

_T = TypeVar("_T", covariant=True, default=Any)


class _NameOfTorchs(ABCMeta):
    """Class of the stand-in, by which `isinstance(x, DataLoader)` holds for every loader of torch's, a
    FastLoader among them.

    It derives from ABCMeta, so that a program's classes may derive from the stand-in and from an abstract
    class.
    """

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, TorchLoader) if cls is DataLoader else super().__instancecheck__(instance)

    def __subclasscheck__(cls, subclass: type) -> bool:
        return issubclass(subclass, TorchLoader) if cls is DataLoader else super().__subclasscheck__(subclass)


class DataLoader(FastLoader[_T], metaclass=_NameOfTorchs):
    """A FastLoader in which torch's own DataLoader runs whatever FastLoader refuses.

    1. Torch's DataLoader runs if FastLoader raises for the arguments, or at `iter()`. A line on stderr says
       why, once for each reason.
    2. An exception that torch's DataLoader raises as well is the program's: it is torch's.
    3. A subclass that never calls this `__init__`, such as torchdata's StatefulDataLoader, is as torch's
       DataLoader.
    4. Pickles name this class: they load wherever fastload is installed, in a drop-in run or not.
    """

    def __init__(self, *given: Any, **options: Any) -> None:
        before = dict(self.__dict__)
        try:
            arguments = Arguments[Any](*given, **options)
            if isinstance(arguments.dataset, str | os.PathLike):
                raise ArgumentError("a path is a packed dataset for FastLoader only")
            super().__init__(*given, **options)
        except Exception as error:
            refused = error
        else:
            report.note(self, given_workers=arguments.num_workers)
            return
        self.__dict__.clear()
        self.__dict__.update(before)
        # What made another loader of this class has them.
        theirs = {name: value for name, value in options.items() if name not in SHOWN}
        TorchLoader.__init__(self, *given, **theirs)
        report.refused(self, refused)

    __init__.__signature__ = inspect.signature(FastLoader.__init__)  # type: ignore[attr-defined]

    @uncompiled
    def __iter__(self) -> Any:
        if (order := TuneOrder.in_force()) is not None:
            self._tune(order)
        if not _is_fast(self):
            return TorchLoader.__iter__(self)
        self._compare()
        try:
            iterator = super().__iter__()
        except FastloadError as error:
            self._give_up(error)
            return TorchLoader.__iter__(self)
        report.begun(self, iterator)
        return iterator

    @uncompiled
    def _get_iterator(self) -> Any:
        return super()._get_iterator() if _is_fast(self) else TorchLoader._get_iterator(self)

    def _tune(self, order: TuneOrder) -> None:
        """Tries settings of this loader, and ends the process. See NOTE [ tune: how a program's loader is
        tried ]."""
        from fastload.run.tuning import tune_and_end

        tune_and_end(order, self, _is_fast(self), report.given_workers(self))

    def _compare(self) -> None:
        """Says how fast both loaders are, before the first epoch of a run that compares them."""
        most, workers = report.to_compare(self)
        if most:
            report.say(compared(self, most, workers))

    def _give_up(self, error: Exception) -> None:
        """Leaves this loader to torch's DataLoader from now on."""
        FastLoader.close(self)
        del self._fastload
        report.refused(self, error)

    def check_worker_number_rationality(self) -> None:
        """DataLoader's warning about more processes than CPUs."""
        if _is_fast(self):
            super().check_worker_number_rationality()
        else:
            TorchLoader.check_worker_number_rationality(self)

    def __getstate__(self) -> dict[str, Any]:
        state = super().__getstate__() if _is_fast(self) else self.__dict__
        return {name: value for name, value in state.items() if name != NOTED}

    def __setstate__(self, state: dict[str, Any]) -> None:
        # Of a loader that torch's DataLoader runs, or one that was pickled outside of drop-in runs.
        if "_fastload" not in state:
            self.__dict__.update(state)
            return
        super().__setstate__(state)
        report.note(self, given_workers=self.num_workers)

    def set_epoch(self, epoch: int) -> None:
        """Sets the number of the next epoch; samplers that have a set_epoch are told as well."""
        if _is_fast(self):
            super().set_epoch(epoch)
            return
        for tell in _set_epochs(self):
            tell(epoch)

    def state_dict(self) -> dict[str, Any]:
        """State of the last `iter()`, as FastLoader's; empty where torch's DataLoader runs, which has
        none."""
        return super().state_dict() if _is_fast(self) else {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """The next `iter()` goes on where `state_dict()` was. An empty state, or one where torch's
        DataLoader runs, changes nothing."""
        if _is_fast(self) and state:
            super().load_state_dict(state)


def _is_fast(loader: DataLoader[Any]) -> bool:
    """Returns True if FastLoader's code runs a loader; False if torch's does."""
    return "_fastload" in loader.__dict__


def _set_epochs(loader: TorchLoader[Any]) -> Iterator[Any]:
    for sampler in (loader.sampler, loader.batch_sampler, getattr(loader.batch_sampler, "sampler", None)):
        if callable(tell := getattr(sampler, "set_epoch", None)):
            yield tell
