"""A transform list, planned: what the native decoder does of it, what the device can do to whole batches, what is left for Python.

The planner keeps the list's meaning or refuses it: nothing is reordered unless the result is the same pixels. torchvision's transforms are
recognised by module, class name and attributes; torchvision is never imported.
"""

from __future__ import annotations

from fastload.plan.compiler import compile_plan
from fastload.plan.output import FLOAT_DTYPES, Planes, outputs_of, stored_output, value_table
from fastload.plan.spec import DeviceOp, Plan, Stage

__all__ = ["FLOAT_DTYPES", "DeviceOp", "Plan", "Planes", "Stage", "compile_plan", "outputs_of", "stored_output", "value_table"]
