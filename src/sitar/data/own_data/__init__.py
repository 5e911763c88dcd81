"""These modules read your own data: a folder of images, a table of images, an .npz file, a table of features."""
