"""The way of a whole batch to its device, and what is done to it there."""
