"""The equations: tensors in, tensors out, no state and no settings."""
