"""Write the model card of a run: what it is for, how it was measured, and where it fails."""
