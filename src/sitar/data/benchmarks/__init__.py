"""Each file holds a published data set, or one that we make: ColorMNIST and `sites`."""
