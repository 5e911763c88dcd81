"""A trained model leaves the building: as one file that other programs run, and as files for a hub of models."""
