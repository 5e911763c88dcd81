"""The audit: which latent axes give the label away in a data set?"""
