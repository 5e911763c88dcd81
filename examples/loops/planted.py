"""Generated images with a planted shortcut, which every recipe in this folder trains on.

The label is the direction of a bar, for nine images in ten. The tint of the image is the shortcut: it agrees with the
label in 95 of 100 training images, and says nothing in test images.
"""

import torch
from torch import Tensor, nn

SIZE = 32


def images(number: int, agreement: float, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return images of the shape (number, 3, 32, 32), their labels, and their groups: label and tint."""
    random = torch.Generator().manual_seed(seed)
    label = torch.randint(2, (number,), generator=random)

    def follow(share: float) -> Tensor:
        return torch.where(torch.rand(number, generator=random) < share, label, 1 - label)

    upright, tint = follow(0.9), follow(agreement)
    row, column = torch.arange(SIZE).view(1, -1, 1), torch.arange(SIZE).view(1, 1, -1)
    top, left = torch.randint(1, SIZE // 2, (2, number, 1, 1), generator=random)
    height = torch.where(upright == 1, 15, 4).view(-1, 1, 1)
    bar = (row >= top) & (row < top + height) & (column >= left) & (column < left + 19 - height)
    x = 0.3 + 0.15 * torch.randn(number, 3, SIZE, SIZE, generator=random) + 0.5 * bar.unsqueeze(1)
    x[:, 0] += 0.2 * tint.view(-1, 1, 1)
    x[:, 2] += 0.2 * (1 - tint).view(-1, 1, 1)
    return 2 * x.clamp(0, 1) - 1, label, 2 * label + tint


@torch.no_grad()
def worst_group(model: nn.Module, seed: int) -> float:
    """Return the accuracy of the worst of the four groups, on new images whose tint says nothing."""
    x, y, group = images(2000, agreement=0.5, seed=1000 + seed)
    correct = torch.cat([model(part) for part in x.split(500)]).argmax(1) == y
    return min(correct[group == g].float().mean().item() for g in range(4))
