"""Trackers show a run elsewhere while it trains: TensorBoard, Weights & Biases, MLflow. One file for each.

They read what the run folder is given, and change no result. A tracker that fails is left out, and training goes on.
"""

from sitar.training.trackers.tracking import Tracking, check_trackers

__all__ = ["Tracking", "check_trackers"]
