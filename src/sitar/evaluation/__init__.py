"""Predictions, group metrics and named selection criteria."""
