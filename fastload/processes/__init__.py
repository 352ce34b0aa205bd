"""The process engine: any Dataset in worker processes over shared slots, or in the calling process."""
