# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, embedsignature=True
"""The native engine, thinly: each part in a file of its own, one module, so that one copy of csrc serves all.

Parts import downward only, in the order of the includes.
"""

include "status.pxi"
include "cpu.pxi"
include "store.pxi"
include "image.pxi"
include "pack.pxi"
include "programs.pxi"
include "ring.pxi"
include "engine.pxi"
include "shared.pxi"
include "steps.pxi"
