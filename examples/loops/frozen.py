"""Train a head on a frozen timm model: plainly, through a beta-VAE (the control), and with noise on its axes."""

import timm
import torch
from planted import images, worst_group
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from sitar.nn import TargetedBottleneck, consistency_loss


def frozen_body(x: Tensor, seed: int) -> nn.Module:
    """Return a timm model without its head. Its weights are random, so its batch norms first see the images."""
    torch.manual_seed(seed)
    body = timm.create_model("resnet10t", num_classes=2, stem_width=16, channels=(32, 64, 128, 128))
    body.reset_classifier(0)
    with torch.no_grad():
        for part in x.split(200):
            body(part)
    return body.eval().requires_grad_(False)


def plain(body: nn.Module, x: Tensor, y: Tensor, epochs: int) -> nn.Module:
    head = nn.Sequential(nn.Linear(x.shape[1], 64), nn.GELU(), nn.Linear(64, 2))
    optimiser = torch.optim.AdamW(head.parameters(), lr=2e-3)
    for _ in range(epochs):
        for part in torch.randperm(len(x)).split(50):
            loss = cross_entropy(head(x[part]), y[part])
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
    return nn.Sequential(body, head).eval()


def targeted(body: nn.Module, x: Tensor, y: Tensor, epochs: int, alpha: float, lambda_: float) -> nn.Module:
    bottleneck = TargetedBottleneck(
        x.shape[1], 2, kind="swap", alpha=alpha, beta=3, vae_scale="sum", score_floor=True, momentum=0.1
    )
    head = nn.Sequential(nn.Linear(bottleneck.num_axes, 64), nn.GELU(), nn.Linear(64, 2))
    optimiser = torch.optim.AdamW([*bottleneck.parameters(), *head.parameters()], lr=2e-3)
    for _ in range(epochs):
        for part in torch.randperm(len(x)).split(50):
            latent, noisy, vae_loss = bottleneck(x[part], y[part])
            logits, noisy_logits = head(latent), head(noisy)
            change = consistency_loss(logits, noisy_logits)
            loss = cross_entropy(noisy_logits, y[part]) + lambda_ * change + vae_loss
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
    return nn.Sequential(body, bottleneck, Latent(), head).eval()


class Latent(nn.Module):
    """Pass on what the head reads of a bottleneck."""

    def forward(self, bottlenecked: tuple[Tensor, Tensor, Tensor]) -> Tensor:
        return bottlenecked[0]


def compare(seed: int = 0, body_seed: int = 0, epochs: int = 30) -> dict[str, float]:
    """Return the accuracy of the worst group of three models, on new images. The seed of the body makes its weights."""
    pictures, y, _ = images(1000, agreement=0.95, seed=seed)
    body = frozen_body(pictures, body_seed)
    x = torch.cat([body(part) for part in pictures.split(200)])  # once, because the body does not change
    torch.manual_seed(seed)
    models = {
        "plain": plain(body, x, y, epochs),
        "control": targeted(body, x, y, epochs, alpha=0.0, lambda_=0.0),
        "noise": targeted(body, x, y, epochs, alpha=1.0, lambda_=10.0),
    }
    return {name: worst_group(model, seed) for name, model in models.items()}


if __name__ == "__main__":
    for name, accuracy in compare().items():
        print(f"worst group, {name}: {accuracy:.3f}")
