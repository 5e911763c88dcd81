"""Tables are plain data, which a terminal prints. There is one file for each kind."""
