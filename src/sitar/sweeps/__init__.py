"""A sweep makes many runs of one preset, side by side, and chooses a setting by `val` alone."""
