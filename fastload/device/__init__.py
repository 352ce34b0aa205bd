"""Transfer of whole batches to their device, and the work on them there."""
