"""Explain what finished runs use, where they look, and what they get wrong.

A part of an explanation is a module of the part's name with a function `make(subject)`. It returns plain values and
arrays, or raises the reason why there are none. What a reader must know of a part is its entry in `sitar.findings`.
"""
