"""Copies of one setting, which differ in the seed alone, are trained together: as one model, or as branches."""
