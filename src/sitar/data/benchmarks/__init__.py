"""Published data sets and ColorMNIST and `sites`, which we make: one file each."""
