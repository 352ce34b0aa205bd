"""Kinds of fields, one class each: checks, encoding, parsing, and the forms that values have in tensors,
tables and files.

A kind is added here: a class in a file of this room, and its instance in KINDS. Other rooms ask
`Field.handler` for what they need to know, and compare no kind by its name.
"""

from __future__ import annotations

from fastload.store.kinds.arrays import ArrayKind
from fastload.store.kinds.base import FieldKind
from fastload.store.kinds.columns import FloatKind, IntKind
from fastload.store.kinds.instances import InstancesKind
from fastload.store.kinds.lists import ImagesKind
from fastload.store.kinds.pictures import ImageKind, MaskKind
from fastload.store.kinds.polygons import PolygonsKind
from fastload.store.kinds.rows import BoxesKind, KeypointsKind
from fastload.store.kinds.texts import BytesKind, JsonKind, TextKind

KINDS: dict[str, FieldKind] = {
    kind.name: kind
    for kind in (
        ImageKind(),
        IntKind(),
        FloatKind(),
        ArrayKind(),
        BytesKind(),
        TextKind(),
        JsonKind(),
        MaskKind(),
        BoxesKind(),
        KeypointsKind(),
        PolygonsKind(),
        InstancesKind(),
        ImagesKind(),
    )
}
"""The kinds by name, in the order in which messages list them."""
