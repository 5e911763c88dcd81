"""The command line has one file for each command. Only commands that need torch import it."""
