"""Training runs the phases of any method and never knows which one it is."""
