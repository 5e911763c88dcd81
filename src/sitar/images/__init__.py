"""These modules turn files into pixels, without torch, so that processes that decode start in no time."""
