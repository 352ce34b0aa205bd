"""Datasets of other libraries that native threads read where they lie: image files and labels that nobody
packed."""
