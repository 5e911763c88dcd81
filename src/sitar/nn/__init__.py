"""Modules and losses for a training loop of your own. They need torch alone: no settings, no run folders."""

from sitar.nn.bottleneck import TargetedBottleneck
from sitar.nn.losses import consistency_loss
from sitar.nn.noise import TargetedNoise
from sitar.nn.running import RunningMoments

__all__ = ["RunningMoments", "TargetedBottleneck", "TargetedNoise", "consistency_loss"]
