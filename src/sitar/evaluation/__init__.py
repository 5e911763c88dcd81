"""Evaluation: what a method predicts, how good that is, and which epoch is the best."""
