"""What a trained model and its data tell when asked: needs torch, and leaves what reports show."""
