"""Batches as values: their containers, how samples are collated into them, and how failed samples are
handled."""
