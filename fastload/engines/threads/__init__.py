"""The engine of native threads: they make batches without the GIL."""
