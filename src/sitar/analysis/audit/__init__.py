"""The audit asks which latent axes give the label away in a data set."""
