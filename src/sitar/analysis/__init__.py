"""Ask a trained model and its data. This room needs torch, and leaves in run folders what reports show."""
