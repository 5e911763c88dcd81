"""From files to pixels, without torch: worker processes that decode start in no time."""
