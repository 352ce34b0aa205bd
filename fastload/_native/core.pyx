# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, embedsignature=True
# cython: auto_pickle=False, binding=False
"""The native engine, thinly: each part in a file of its own, one module, so that one copy of csrc serves all.

What csrc declares is in c_<room>.pxd, once; each part names at its top what it takes of it. A part uses names
of parts included before it only, which tests/native/test_parts.py checks.
"""

include "status.pxi"
include "cpu.pxi"
include "record.pxi"
include "table.pxi"
include "kept.pxi"
include "store.pxi"
include "files.pxi"
include "image.pxi"
include "decoders.pxi"
include "resample.pxi"
include "exact.pxi"
include "colour.pxi"
include "pack.pxi"
include "dct.pxi"
include "planes.pxi"
include "draws.pxi"
include "positions.pxi"
include "snapshots.pxi"
include "fields.pxi"
include "targets.pxi"
include "traces.pxi"
include "programs.pxi"
include "regions.pxi"
include "sizes.pxi"
include "objects.pxi"
include "ring.pxi"
include "indexes.pxi"
include "engine.pxi"
include "waiting.pxi"
include "shared.pxi"
include "steps.pxi"
