"""Put models side by side on the same axes: those of one VAE, whose decoder turns a step on an axis into an image."""

from __future__ import annotations

from typing import Any

from sitar.analysis.explain.gradients import check_gradient, gradient_batch, sizes, slopes
from sitar.analysis.explain.subject import Subject
from sitar.analysis.samples import refuse_features


def make(subject: Subject) -> tuple[dict[str, Any], dict[str, Any]]:
    """Measure how fast a model's logits change with the decoded image, along the axes of the reference VAE."""
    model = subject.model
    check_gradient(model)
    refuse_features(model)
    reference = subject.references.choose(model.data.checksum, *subject.held_out)
    mu = reference.mu.to(model.device)
    jacobian = slopes(lambda z: model.differentiable(reference.vae.decode(z)), mu, gradient_batch(model)).cpu()
    values = {
        "run": str(reference.folder.path),
        "preset": reference.preset,
        "seed": reference.seed,
        "n": len(mu),
        "axes": list(range(mu.shape[1])),
        "values": sizes(jacobian, reference.mu.std(0)).tolist(),
        "v": reference.v.tolist(),
    }
    return values, {}
