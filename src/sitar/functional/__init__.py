"""Here are the equations. They take tensors and return tensors, and have no state and no settings."""
