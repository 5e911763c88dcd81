"""Inputs that no user means to give: every parser ends with success or a SitarError, in 10 s and 2 GB."""
