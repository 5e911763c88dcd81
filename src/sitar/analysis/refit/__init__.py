"""Fit the last layer of finished runs again, to training data and to a person's answers about new images."""
