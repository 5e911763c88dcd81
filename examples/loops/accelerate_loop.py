"""Train with Accelerate, on any number of processes: `accelerate launch examples/loops/accelerate_loop.py`.

The noise is a part of the model, so that one call of the model makes both logits. Then Accelerate's wrapper for several
processes sees every use of the parameters, and the noise scores the batch of all processes together.
"""

import timm
import torch
from accelerate import Accelerator
from planted import images, worst_group
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset

from sitar.nn import TargetedNoise, consistency_loss


class Network(nn.Module):
    """A timm model that returns its loss where it is given labels, and its logits elsewhere."""

    def __init__(self, alpha: float, lambda_: float) -> None:
        super().__init__()
        self.body = timm.create_model("resnet10t", num_classes=0, stem_width=8, channels=(16, 32, 64, 64))
        self.head = nn.Linear(self.body.head_hidden_size, 2)
        self.noise = TargetedNoise(self.body.head_hidden_size, num_classes=2, alpha=alpha, momentum=0.1)
        self.lambda_ = lambda_

    def forward(self, x: Tensor, labels: Tensor | None = None) -> Tensor:
        features = self.body(x)
        logits = self.head(features)
        if labels is None:
            return logits
        noisy_logits = self.head(self.noise(features, labels))
        return cross_entropy(noisy_logits, labels) + self.lambda_ * consistency_loss(logits, noisy_logits)


def train(alpha: float, lambda_: float, seed: int = 0, epochs: int = 4, *, cpu: bool = False) -> tuple[float, float]:
    """Return the accuracy of the worst group on new images, and the highest score of a feature."""
    accelerator = Accelerator(cpu=cpu)
    torch.manual_seed(seed)
    x, y, _ = images(800, agreement=0.95, seed=seed)
    model = Network(alpha, lambda_)
    optimiser = torch.optim.AdamW(model.parameters(), lr=2e-3)
    loader = DataLoader(TensorDataset(x, y), batch_size=50, shuffle=True)
    model, optimiser, loader = accelerator.prepare(model, optimiser, loader)
    for _ in range(epochs):
        model.train()
        for inputs, labels in loader:
            loss = model(inputs, labels)
            optimiser.zero_grad()
            accelerator.backward(loss)
            optimiser.step()
    trained = accelerator.unwrap_model(model).cpu().eval()
    return worst_group(trained, seed), trained.noise.scores.max().item()


if __name__ == "__main__":
    for name, (alpha, lambda_) in {"without noise": (0.0, 0.0), "with noise": (1.0, 10.0)}.items():
        accuracy, score = train(alpha, lambda_)
        print(f"worst group, {name}: {accuracy:.3f} (highest score of a feature: {score:.2f})")
