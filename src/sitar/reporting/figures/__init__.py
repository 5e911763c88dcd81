"""Figures are drawn with matplotlib, from run folders and records."""
