"""Doctor: checks a machine and a dataset before a job, one file a family of checks. Nothing here imports torch, and nothing is written to
the dataset."""
