"""The engine of worker processes over shared slots, for any Dataset; and the same work in the calling
process."""
