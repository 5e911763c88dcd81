"""Fine-tune a timm model, in a loop as most people write it. `finetune_noise.py` is the same loop with noise."""

import timm
import torch
from planted import images, worst_group
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset


def train(seed: int = 0, epochs: int = 4) -> float:
    """Train on generated images, and return the accuracy of the worst group on new ones."""
    torch.manual_seed(seed)
    x, y, _ = images(800, agreement=0.95, seed=seed)
    loader = DataLoader(TensorDataset(x, y), batch_size=50, shuffle=True)
    model = timm.create_model("resnet10t", num_classes=2, stem_width=8, channels=(16, 32, 64, 64))  # random weights
    optimiser = torch.optim.AdamW(model.parameters(), lr=2e-3)
    for _ in range(epochs):
        model.train()
        for inputs, labels in loader:
            logits = model(inputs)
            loss = cross_entropy(logits, labels)
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
    return worst_group(model.eval(), seed)


if __name__ == "__main__":
    print(f"worst group, plain loop: {train():.3f}")
