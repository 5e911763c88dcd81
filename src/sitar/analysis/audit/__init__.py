"""The audit asks which simple cues and which latent axes tell the label in a data set."""
