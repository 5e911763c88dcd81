"""Which axes does a trained classifier use? How fast its logits change along each, in steps that samples differ by."""

from __future__ import annotations

from typing import Any

from sitar.analysis.explain.gradients import check_gradient, gradient_batch, sizes, slopes
from sitar.analysis.explain.subject import Subject
from sitar.analysis.latents import bottleneck_of


def make(subject: Subject) -> tuple[dict[str, Any], dict[str, Any]]:
    """Measure a model along the axes of its own latent, at the posterior means of held-out samples."""
    model = subject.model
    check_gradient(model)
    classify, mu = bottleneck_of(model).classify, subject.mu
    jacobian = slopes(classify, mu.to(model.device), gradient_batch(model)).cpu()
    deviation = mu.std(0)
    two_classes = jacobian.shape[1] == 2
    signed = (jacobian[:, 1] - jacobian[:, 0]).mean(0) * deviation if two_classes else None
    values = {
        "n": len(mu),
        "axes": list(range(mu.shape[1])),
        "values": sizes(jacobian, deviation).tolist(),
        "v": subject.v.tolist(),
        "signed": None if signed is None else signed.tolist(),
    }
    return values, {}
