"""Fine-tune a timm model with noise on the features that track the label. `finetune_plain.py` is the loop without."""

import timm
import torch
from planted import images, worst_group
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset

from sitar.nn import TargetedNoise, consistency_loss


def train(seed: int = 0, epochs: int = 4) -> float:
    """Train on generated images, and return the accuracy of the worst group on new ones."""
    torch.manual_seed(seed)
    x, y, _ = images(800, agreement=0.95, seed=seed)
    loader = DataLoader(TensorDataset(x, y), batch_size=50, shuffle=True)
    model = timm.create_model("resnet10t", num_classes=2, stem_width=8, channels=(16, 32, 64, 64))  # random weights
    noise, head = TargetedNoise(model.head_hidden_size, num_classes=2, momentum=0.1), model.get_classifier()
    optimiser = torch.optim.AdamW(model.parameters(), lr=2e-3)
    for _ in range(epochs):
        model.train()
        for inputs, labels in loader:
            features = model.forward_head(model.forward_features(inputs), pre_logits=True)
            logits, noisy_logits = head(features), head(noise(features, labels))
            loss = cross_entropy(noisy_logits, labels) + 10 * consistency_loss(logits, noisy_logits)
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
    return worst_group(model.eval(), seed)


if __name__ == "__main__":
    print(f"worst group, with noise: {train():.3f}")
