"""Drop-in runs: `fastload run train.py`, in whose processes torch's DataLoader name gives FastLoader. No
file of the program changes."""
