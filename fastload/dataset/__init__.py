"""Datasets: packed folders, files where they lie, mixtures; and the sample of each as native threads and
Python see it."""
