"""From a finished slot to the user's tensors."""
