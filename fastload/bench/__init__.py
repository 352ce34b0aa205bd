"""The benchmark harness behind ``fastload bench`` and the scripts in benchmarks/.

``harness`` plans and interleaves turns, ``runner`` is the child process that takes one, ``loaders`` and
``rivals`` build what is measured there, ``measure`` reads the operating system's counters, ``report`` and
``plot`` show the result. Only the child imports torch.
"""
