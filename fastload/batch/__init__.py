"""Batches as values: their containers, how samples are collated into them, and what becomes of samples that fail."""
