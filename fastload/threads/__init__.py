"""The thread engine: native threads make batches of packed data without the GIL."""
