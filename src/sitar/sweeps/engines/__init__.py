"""An engine makes runs, several at a time: in processes of this machine, or on a Ray cluster."""
