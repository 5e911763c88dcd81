"""Predict whole splits, compute metrics, and choose epochs."""
