"""append: packs a source and adds its samples after those of a finished dataset, as a new version.

NOTE [ append: what is durable when ]
1. The source is packed into a folder of its own inside the dataset's, append.tmp, as any dataset is: killed
   there, --resume goes on.
2. Its shards get second names in the dataset's folder (hard links), and the new version names those. Killed
   before that is committed, append.tmp is whole, and --resume does it again. Where the file system has no
   hard links the files are moved, and an append that is killed between the first move and the commit has to
   be begun anew.
3. append.tmp gets the name append.old, and is removed. A resume that finds files of append.tmp in the dataset
   already does only this.

`FittedSource` fits a source's samples to the dataset: the same fields, and labels that mean the same classes.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from typing_extensions import Unpack

from fastload.common.files import expanded
from fastload.common.limits import checked_max_pixels
from fastload.errors import ArgumentError, PackError, PackStoppedError, printable
from fastload.packing import Item, PackOptions, PackSummary, Source, open_source
from fastload.packing.attach import AttachJob
from fastload.packing.from_cache import reading_cache
from fastload.packing.job import PackJob, run_job
from fastload.packing.keywords import keywords, settled, takes_options
from fastload.packing.options import AS_PACKED, AppendKeywords, RunOptions
from fastload.sources.annotated import INSTANCE_MASK
from fastload.sources.foreign import refuse_urls
from fastload.sources.options import source_options, taken
from fastload.sources.protocol import Traced, Value, attribute_of, schema_of
from fastload.store import MANIFEST_NAME, DatasetChange, Field, Manifest, ShardEntry, numbered
from fastload.store.labels import object_labels
from fastload.store.manifest import dataset_folder
from fastload.store.progress import DONE_NAME, WORK_NAME, remove_work
from fastload.versions.concat import joined_options, joined_summary

if TYPE_CHECKING:
    from fastload.sources.notices import Notice

_LABEL = "label"


def fit_source(source: Source, manifest: Manifest, dataset: Path) -> tuple[Source, tuple[str, ...] | None]:
    """The source with labels of the dataset in `dataset`, and the names of the classes of both together.

    Classes go by their names: known ones keep their labels, new ones come after them. Labels without names
    must be below the number of the dataset's classes.

    Raises:
        PackError: the source has other fields than the dataset, or only it has names of classes.
    """
    _check_fields(source, manifest, dataset)
    names = None if manifest.classes is None else tuple(manifest.classes)
    given = source.classes
    labels: Mapping[int, int] = {}
    fields = tuple(field for field in manifest.schema if field != manifest.schema.image)
    if given is not None and given != names:
        if names is None:
            raise PackError(
                f"{source.title} does not fit {dataset}: its labels are classes with names, the "
                "dataset's are numbers without names; "
                "give the labels as numbers, in a .csv of path,label"
            )
        names = (*names, *(name for name in given if name not in names))
        places = {name: place for place, name in reversed(list(enumerate(names)))}
        labels = {label: places[name] for label, name in enumerate(given)}
        masks = [field.name for field in fields if field.handler.holds_labels and field.name != INSTANCE_MASK]
        if masks and any(label != place for label, place in labels.items()):
            raise PackError(
                f"{source.title} does not fit {dataset}: its classes {', '.join(given)} are not the "
                f"dataset's {', '.join(names)} in their "
                f"order, and the labels in its field {masks[0]!r} stay as they are; give the source "
                "the dataset's classes"
            )
    limit = (
        None
        if names is None or given is not None or all(field.name != _LABEL for field in fields)
        else len(names)
    )
    kind = _FittedTraced if isinstance(source, Traced) else _Fitted
    return kind(source, fields, labels, limit, dataset), names


def _check_fields(source: Source, manifest: Manifest, dataset: Path) -> None:
    wanted = {field.name: field for field in manifest.schema if field != manifest.schema.image}
    given = {field.name: field for field in source.fields}
    added = {name for shard in manifest.shards for name in shard.added}
    start = f"{source.title} does not fit {dataset}: "
    image, stored = schema_of(source).fields[0], manifest.schema.image
    if stored is not None and (image.dtype, image.shape) != (stored.dtype, stored.shape):
        raise PackError(f"{start}its image is {image}, the dataset's {stored}; change the source's")
    for name, field in wanted.items():
        if name not in given:
            drop = (
                f", or take it away first: `fastload columns {dataset} drop {name}`" if name in added else ""
            )
            raise PackError(f"{start}it has no field {name!r} ({field}); give the source one{drop}")
        if given[name] != field:
            raise PackError(
                f"{start}its field {name!r} is {given[name]}, the dataset's {field}; change the source's"
            )
        if what := given[name].other_points(field):
            raise PackError(
                f"{start}the keypoints of its field {name!r} have other {what} than the dataset's; "
                "put them in its order"
            )
    for name in given:
        if name not in wanted:
            raise PackError(
                f"{start}the dataset has no field {name!r}; leave it out of the source, or add it: "
                f"`fastload columns {dataset} add`"
            )


class _Fitted:
    """A source with other labels."""

    def __init__(
        self,
        source: Source,
        fields: tuple[Field, ...],
        labels: Mapping[int, int],
        limit: int | None,
        dataset: Path,
    ) -> None:
        self._source = source
        self._labels = labels
        self._limit = limit
        self._dataset = dataset
        self.fields = fields
        self._objects = [field.name for field in object_labels(fields)]

    @property
    def title(self) -> str:
        """The source's."""
        return self._source.title

    @property
    def classes(self) -> tuple[str, ...] | None:
        """The source's."""
        return self._source.classes

    @property
    def concurrent(self) -> bool:
        """The source's."""
        return self._source.concurrent

    @property
    def image_field(self) -> Field:
        """The source's."""
        return schema_of(self._source).fields[0]

    @property
    def label_limits(self) -> Mapping[str, int]:
        """The source's, but for objects whose labels are fitted."""
        limits = attribute_of(self._source, "label_limits")
        return {name: limit for name, limit in limits.items() if not (self._labels and name in self._objects)}

    @property
    def says_drawn_on(self) -> bool:
        """The source's."""
        return bool(attribute_of(self._source, "says_drawn_on"))

    @property
    def layout(self) -> str:
        """The source's."""
        return str(attribute_of(self._source, "layout"))

    @property
    def notices(self) -> tuple[Notice, ...]:
        """The source's."""
        return tuple(attribute_of(self._source, "notices"))

    def __len__(self) -> int:
        return len(self._source)

    def name(self, position: int) -> str:
        """The source's."""
        return self._source.name(position)

    def read(self, position: int) -> Item:
        """The source's sample, with the labels of the dataset."""
        item = self._source.read(position)
        return replace(item, values=self._fit(item.values, item.name))

    def _fit(self, values: dict[str, Value], name: str) -> dict[str, Value]:
        for each in self._objects if self._labels else ():
            values = {**values, each: self._fit_objects(np.asarray(values[each]), each, name)}
        label = values.get(_LABEL)
        if isinstance(label, int) and label in self._labels:
            return {**values, _LABEL: self._labels[label]}
        if self._limit is not None and isinstance(label, int) and not 0 <= label < self._limit:
            raise PackError(
                f"{printable(name)} has the label {label}, and {self._dataset} has the classes 0 to "
                f"{self._limit - 1}: "
                "give the source names of classes, of which new ones are added"
            )
        return values

    def _fit_objects(self, labels: npt.NDArray[Any], field: str, name: str) -> npt.NDArray[Any]:
        """The labels of objects in the dataset. Raises PackError where one is of no class of the source's."""
        if unknown := [label for label in labels.tolist() if label not in self._labels]:
            raise PackError(
                f"{printable(name)}: its {field!r} has the label {unknown[0]}, the classes are 0 to "
                f"{len(self._labels) - 1}"
            )
        return np.array([self._labels[label] for label in labels.tolist()], np.int64)


class _FittedTraced(_Fitted):
    """A source that knows more of its samples than names."""

    _source: Source

    @property
    def _traced(self) -> Traced:
        assert isinstance(self._source, Traced)
        return self._source

    def key(self, position: int) -> str:
        """The source's."""
        return self._traced.key(position)

    def stamp(self, position: int) -> tuple[int, int]:
        """The source's."""
        return self._traced.stamp(position)

    def fields_of(self, position: int) -> dict[str, Value] | None:
        """The source's, with the label of the dataset."""
        values = self._traced.fields_of(position)
        return None if values is None else self._fit(values, self.name(position))


_GO_ON = "run `fastload append` with --resume"


@dataclass(frozen=True, slots=True)
class AppendSummary:
    """Result of `append`.

    Attributes:
        version: the new version.
        samples: samples in it.
        pack: counts of what was added.
    """

    version: int
    samples: int
    pack: PackSummary


@takes_options
def append(out: str | os.PathLike[str], source: object, **options: Unpack[AppendKeywords]) -> AppendSummary:
    """Packs a source and adds its samples after those of a finished dataset, as a new version.

    To a dataset made by `attach`, the source is attached. The fields must be the dataset's. Known classes
    keep their labels, new ones follow. Labels without names must be below the number of classes.

    Args:
        out: the dataset's directory.
        source: as for `fastload.pack`.

    Returns:
        The new version, and its counts.

    Raises:
        ArgumentError: as in `fastload.pack`.
        DatasetError: no finished dataset, or a damaged one.
        PackError: the source does not fit, a sample cannot be packed (PackStoppedError), there is nothing to
            resume, the disk is full, or another process writes to the dataset, which stays as it was.
    """
    given = settled("append", options)
    reading = source_options(given)
    run = RunOptions.of(given)
    path = dataset_folder(out)
    _refuse_dataset(source)
    with DatasetChange(path, _GO_ON) as change:
        if change.manifest.schema.images is not None:
            raise PackError(
                f"{path}: its samples have any number of images: `fastload pack` packs all of them again"
            )
        attached = change.manifest.options.get("attached") is True
        if attached:
            _refuse_changes(path, given, change.manifest)
            refuse_urls(source, "an attached dataset takes")
        chosen = _options(change.manifest, given)
        opened = open_source(source, reading)
        fitted, classes = fit_source(opened, change.manifest, path)
        job = _Append(change)
        job.begin(run.resume)
        try:
            with reading_cache(opened, run.from_cache) as taken:
                made = AttachJob(fitted, opened, chosen) if attached else PackJob(fitted, chosen)
                summary = replace(run_job(made, job.folder, run), from_cache=taken())
        except PackStoppedError:
            raise
        except PackError as error:
            raise PackError(
                str(error).replace("--overwrite starts again", "without --resume it starts again")
            ) from error
        manifest = job.finish(classes)
    return AppendSummary(manifest.version, manifest.count, summary)


def _refuse_dataset(source: object) -> None:
    if isinstance(source, str | os.PathLike) and (Path(expanded(source)) / MANIFEST_NAME).is_file():
        raise PackError(
            f"{os.fspath(source)} is a packed dataset: `fastload concat` makes one of several, "
            "without copying them"
        )


def _refuse_changes(path: Path, given: Mapping[str, Any], manifest: Manifest) -> None:
    """Raises ArgumentError for options that would change images, which an attached dataset leaves as they
    are."""
    for name in AS_PACKED:
        if name not in keywords("attach") and given[name] not in (None, manifest.options.get(name)):
            raise ArgumentError(
                f"{path} was made by `fastload attach`, which leaves images as they are: append "
                f"without {name}={given[name]!r}, or pack "
                "the source with it and join both by `fastload concat`"
            )


def _options(manifest: Manifest, given: Mapping[str, Any]) -> PackOptions:
    """The options of this pack: those given, else what the dataset was packed with, else the defaults."""
    chosen = {name: manifest.options[name] for name in AS_PACKED if manifest.options.get(name) is not None}
    chosen |= {
        name: value
        for name, value in taken(given, PackOptions).items()
        if value is not None or name not in AS_PACKED
    }
    chosen["max_pixels"] = checked_max_pixels(chosen.get("max_pixels"))
    try:
        return PackOptions(**chosen)
    except ArgumentError as error:
        raise ArgumentError(
            f"{error} (what is not given is as the dataset was packed: `fastload info` shows it)"
        ) from None


class _Append:
    """One append to a locked dataset. See NOTE [ append: what is durable when ]."""

    def __init__(self, change: DatasetChange) -> None:
        self._change = change
        self._done = change.path / DONE_NAME
        self.folder = change.path / WORK_NAME

    def begin(self, resume: bool) -> None:
        """Removes what earlier appends left, but for what is resumed.

        Raises:
            PackError: there is nothing to resume, or what is there was added already.
        """
        remove_work(self._done)
        if not resume:
            remove_work(self.folder)
            return
        now = (
            f"{self._change.path} is at version {self._change.manifest.version} with "
            f"{self._change.manifest.count:,} samples"
        )
        if not self.folder.is_symlink() and self._is_added():
            self._clear()
            raise PackError(f"the append that was stopped had added its samples already: {now}")
        # A link leads to other files than an append's.
        if self.folder.is_symlink() or not self.folder.is_dir():
            raise PackError(f"there is no append to go on with: {now}; without --resume it adds the source")

    def _is_added(self) -> bool:
        """Returns True if the samples in append.tmp are in the dataset: its first shard is a file that the
        manifest names."""
        try:
            shards = Manifest.load(self.folder).shards
            first = (self.folder / shards[0].file).stat() if shards else None
            files = [
                self._change.path / shard.file
                for shard in self._change.manifest.shards
                if shard.folder is None
            ]
            return first is not None and any(os.path.samestat(first, file.stat()) for file in files)
        except OSError:  # DatasetError is one: the pack in append.tmp is unfinished
            return False

    def finish(self, classes: tuple[str, ...] | None) -> Manifest:
        """Adds the samples that were packed as a new version. Raises PackError."""
        change, packed = self._change, Manifest.load(self.folder)
        now = change.manifest
        try:
            shards = [
                self._take_shard(*each, packed)
                for each in zip(packed.shards, change.unused_names("shard"), strict=False)
            ]
            names = change.unused_names("index")
            sidecars = [
                replace(each, file=self._take(each.file, name))
                for each, name in zip(packed.sidecars, names, strict=False)
            ]
        except OSError as error:
            raise PackError(
                f"cannot move the new shards into {change.path}: {error.strerror}; mend that and {_GO_ON}"
            ) from None
        new = replace(
            now,
            shards=numbered([*now.shards, *shards]),
            classes=classes,
            options=joined_options(now.options, packed.options),
            summary=joined_summary(now.summary, packed.summary),
            sidecars=(*now.sidecars, *sidecars),
        )
        manifest = change.commit(change.with_sidecars(new))
        self._clear()
        return manifest

    def _take(self, file: str, name: str) -> str:
        """Gives a file a name in the dataset's folder, and returns it."""
        try:
            os.link(self.folder / file, self._change.path / name)
        except OSError:
            os.replace(self.folder / file, self._change.path / name)
        return name

    def _take_shard(self, shard: ShardEntry, name: str, packed: Manifest) -> ShardEntry:
        """Gives a shard a name in the dataset's folder, and returns its entry there."""
        self._take(shard.file, name)
        base = shard.base if shard.base is None else os.path.normpath(os.path.join(WORK_NAME, shard.base))
        names = [field.name for field in self._change.manifest.schema]
        order = tuple(field.name for field in packed.schema)
        return replace(shard, file=name, base=base, fields=None if list(order) == names else order)

    def _clear(self) -> None:
        try:
            os.replace(self.folder, self._done)
        except OSError as error:
            raise PackError(
                f"cannot remove {self.folder}, which is no longer needed: {error.strerror}"
            ) from None
        remove_work(self._done)
