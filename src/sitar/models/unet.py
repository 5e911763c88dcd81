"""A class-conditional U-Net from diffusers, with its noise schedule, takes images of any size and channels."""

from __future__ import annotations

from collections.abc import Sequence
from math import gcd

from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from sitar.errors import ConfigError

MISSING = 'This method needs diffusers, which cannot be imported ({}). Run `pip install "sitar[diffusion]"`.'


class ConditionalUNet(nn.Module):
    """The U-Net predicts the noise in `x` at step `t` for class `y`.

    Every width but the first halves the image. If its size cannot be divided, the image is padded with zeros and the
    prediction is cropped. There is no attention: once the image is small, the convolutions see all of it.
    """

    def __init__(self, shape: Sequence[int], num_classes: int, channels: Sequence[int], layers_per_block: int) -> None:
        super().__init__()
        try:
            from diffusers.models.unets.unet_2d import UNet2DModel
        except ImportError as error:
            raise ConfigError(MISSING.format(error)) from error
        inputs, height, width = shape
        multiple = 2 ** (len(channels) - 1)
        self.top, self.left = (-height % multiple) // 2, (-width % multiple) // 2
        self.bottom, self.right = -height % multiple - self.top, -width % multiple - self.left
        self.unet = UNet2DModel(
            in_channels=inputs,
            out_channels=inputs,
            block_out_channels=tuple(channels),
            layers_per_block=layers_per_block,
            down_block_types=("DownBlock2D",) * len(channels),
            up_block_types=("UpBlock2D",) * len(channels),
            add_attention=False,
            norm_num_groups=norm_groups(channels),
            dropout=0.0,
            num_class_embeds=num_classes,
        )

    def forward(
        self,
        x: Float[Tensor, "batch channel height width"],
        t: Int[Tensor, " batch"],
        y: Int[Tensor, " batch"],
    ) -> Float[Tensor, "batch channel height width"]:
        height, width = x.shape[-2:]
        padded = F.pad(x, (self.left, self.right, self.top, self.bottom))
        (out,) = self.unet(padded, t, y, return_dict=False)
        return out[..., self.top : self.top + height, self.left : self.left + width]


def norm_groups(channels: Sequence[int]) -> int:
    """Return how many groups group normalisation has: the most, up to 32, that divide every width.

    A group holds four channels or more.
    """
    common = gcd(*channels)
    return max((groups for groups in range(1, 33) if common % groups == 0 and common // groups >= 4), default=1)


def cosine_alphas_cumprod(steps: int) -> Float[Tensor, " step"]:
    """Return alpha_bar of every step. It falls from almost 1 to almost 0 (Nichol and Dhariwal, 2021)."""
    try:
        from diffusers.schedulers.scheduling_ddpm import DDPMScheduler
    except ImportError as error:
        raise ConfigError(MISSING.format(error)) from error
    return DDPMScheduler(num_train_timesteps=steps, beta_schedule="squaredcos_cap_v2").alphas_cumprod.clone()
