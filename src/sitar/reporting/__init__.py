"""Tables and figures, rebuilt from run folders alone: no torch here."""
