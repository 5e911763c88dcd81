"""The command line: one file a command, torch imported only by those that need it."""
