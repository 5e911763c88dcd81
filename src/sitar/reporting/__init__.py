"""Tables, figures and pages are made from run folders alone: this room needs no torch."""
