"""Figures, drawn with matplotlib from run folders and records."""
