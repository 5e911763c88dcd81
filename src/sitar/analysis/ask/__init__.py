"""Ask a person which class an image has, and choose the best of several trained models by the answers."""
