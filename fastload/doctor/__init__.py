"""Doctor: checks of a machine and a dataset before a job, one file a family. Nothing here imports torch,
or writes to the dataset."""
