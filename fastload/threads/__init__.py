"""The native engine: packed data made into batches by threads without the GIL."""
