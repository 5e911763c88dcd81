"""The diffusion classifier: its equations against Gaussians, for which everything is known, and the method's scores."""

from __future__ import annotations

import math
import sys

import pytest
import torch
from torch import Tensor

from helpers.referees import MANY, close
from sitar.config import ModelConfig, run_config
from sitar.data import Task, TrainBatch
from sitar.errors import ConfigError
from sitar.functional.denoising import antithetic_noise, class_errors, even_timesteps, noised, random_timesteps
from sitar.methods import diffusion
from sitar.methods.diffusion import Diffusion, DiffusionConfig
from sitar.models.unet import ConditionalUNet, cosine_alphas_cumprod, norm_groups

pytestmark = pytest.mark.shapes

SHAPE, SPREAD, CLASSES = (3, 2, 2), 0.6, 3
ALPHAS = torch.linspace(0.99, 0.01, 50, dtype=torch.float64)


def means() -> Tensor:
    return torch.randn(CLASSES, *SHAPE, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


def images(n: int) -> Tensor:
    return torch.randn(n, *SHAPE, dtype=torch.float64, generator=torch.Generator().manual_seed(2))


def optimal(x_t: Tensor, t: Tensor, y: Tensor) -> Tensor:
    """E[noise | x_t, y] when class y is N(means[y], SPREAD^2 I)."""
    a = ALPHAS[t].view(-1, 1, 1, 1)
    return (1 - a).sqrt() * (x_t - a.sqrt() * means()[y]) / (a * SPREAD**2 + 1 - a)


def expected_errors(x: Tensor, t: Tensor) -> Tensor:
    """The optimal denoiser's squared error for images (n, class), over the noise in closed form, averaged over t.

    It misses the noise e by e a s^2 / D - sqrt(a (1 - a)) (x - m) / D, D = a s^2 + 1 - a; the mixed term has mean 0.
    """
    a = ALPHAS[t]
    d = a * SPREAD**2 + 1 - a
    distance = (x.unsqueeze(1) - means()).square().flatten(2).sum(2)
    noise_part = math.prod(SHAPE) * (a * SPREAD**2 / d).square()
    return (noise_part + (a * (1 - a) / d.square()) * distance.unsqueeze(2)).mean(2)


def tiny(shape=(3, 8, 8), classes: int = 3, counts: tuple[int, ...] | None = None, **options) -> Diffusion:
    torch.manual_seed(0)
    counts = counts or (10,) * classes
    config = DiffusionConfig(**{"unet_channels": (8, 8), "layers_per_block": 1, "scoring_pairs": 3, **options})
    return Diffusion(config, ModelConfig(), Task(shape, classes, sum(counts), counts)).eval()


def test_errors_of_gaussian_classes_in_closed_form():
    """Each draw of noise with its opposite at the same t, and as long as noise is on average: then it is exact."""
    t = even_timesteps(50, 7)
    noise = torch.randn(7, *SHAPE, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    noise = noise * math.sqrt(math.prod(SHAPE)) / noise.flatten(1).norm(dim=1).view(-1, 1, 1, 1)
    x = images(5)
    errors = class_errors(optimal, x, CLASSES, t.repeat(2), torch.cat([noise, -noise]), ALPHAS)
    close(errors, expected_errors(x, t).numpy(), rtol=1e-10)


def test_errors_of_gaussian_classes_over_many_draws():
    """Plain independent noise. The spread over the draws is estimated from ten runs."""
    t, x, n = torch.tensor([4, 25, 40]), images(2), 300
    torch.manual_seed(0)
    runs = torch.stack(
        [
            class_errors(optimal, x, CLASSES, t.repeat(n), torch.randn(3 * n, *SHAPE, dtype=torch.float64), ALPHAS)
            for _ in range(10)
        ]
    )
    error = runs.std(0) / math.sqrt(10)
    assert ((runs.mean(0) - expected_errors(x, t)).abs() < 5 * error).all()
    assert (error < 0.02 * runs.mean(0)).all()  # the check is sharp


def test_lowest_error_is_the_nearest_mean():
    x = images(40)
    nearest = torch.cdist(x.flatten(1), means().flatten(1)).argmin(1)
    assert nearest.unique().numel() == CLASSES
    noise = antithetic_noise(2, SHAPE).double()
    assert torch.equal(class_errors(optimal, x, CLASSES, torch.tensor([20, 20]), noise, ALPHAS).argmin(1), nearest)


def test_opposite_noise_makes_classes_comparable():
    """What e and -e cancel is all the noise in the difference of two classes, at one t; most of it at neighbours."""
    x, t = images(20), even_timesteps(50, 10)
    truth = expected_errors(x, t)

    def miss(noise: Tensor) -> float:
        errors = class_errors(optimal, x, CLASSES, t, noise, ALPHAS)
        return float(((errors - errors[:, :1]) - (truth - truth[:, :1])).square().mean().sqrt())

    torch.manual_seed(0)
    opposite = [miss(antithetic_noise(10, SHAPE).double()) for _ in range(20)]
    independent = [miss(torch.randn(10, *SHAPE, dtype=torch.float64)) for _ in range(20)]
    assert sum(opposite) < 0.5 * sum(independent)


def test_same_pairs_for_every_class_and_image():
    calls = []

    def denoiser(x_t: Tensor, t: Tensor, y: Tensor) -> Tensor:
        calls.append((x_t, t, y))
        return torch.zeros_like(x_t)

    x, t = images(4), torch.tensor([3, 30, 17])
    noise = antithetic_noise(3, SHAPE).double()
    class_errors(denoiser, x, CLASSES, t, noise, ALPHAS)
    assert len(calls) == 3
    for (x_t, steps, y), step, draw in zip(calls, t, noise, strict=True):
        a = ALPHAS[step]
        assert (steps == step).all()
        assert torch.equal(y.view(4, CLASSES), torch.arange(CLASSES).expand(4, -1))
        used = (x_t.view(4, CLASSES, *SHAPE) - a.sqrt() * x.unsqueeze(1)) / (1 - a).sqrt()
        close(used, draw.expand_as(used).numpy())


@pytest.mark.parametrize("pixels", [1, 4, 36])
def test_errors_are_summed_over_pixels_and_averaged_over_pairs(pixels):
    x = torch.zeros(2, 1, 1, pixels)
    noise = torch.stack([torch.ones(1, 1, pixels), torch.full((1, 1, pixels), 3.0)])
    errors = class_errors(lambda x_t, t, y: torch.zeros_like(x_t), x, 2, torch.tensor([0, 1]), noise, torch.ones(2))
    close(errors, [[5.0 * pixels] * 2] * 2)


@pytest.mark.parametrize(("steps", "count"), [(1000, 32), (1000, 1), (1000, 1000), (1000, 999), (7, 5), (1, 1)])
def test_timesteps_are_even(steps, count):
    t = even_timesteps(steps, count)
    assert t.shape == (count,)
    assert t.dtype == torch.long
    assert t.min() >= 0
    assert t.max() < steps
    assert t.unique().numel() == count
    assert torch.equal(t, t.sort().values)
    gaps = t.diff()
    assert count == 1 or gaps.max() - gaps.min() <= 1
    assert abs(int(t[0] + t[-1]) - (steps - 1)) <= 1  # neither end is preferred


@pytest.mark.parametrize(("steps", "count"), [(10, 11), (10, 0)])
def test_timesteps_that_cannot_be_distinct_are_refused(steps, count):
    with pytest.raises(ValueError, match=f"{count} distinct timesteps cannot be taken from {steps}"):
        even_timesteps(steps, count)


def test_random_timesteps_are_uniform():
    torch.manual_seed(0)
    counts = torch.bincount(random_timesteps(torch.zeros(MANY, 1), 10))
    assert len(counts) == 10
    assert (counts / MANY - 0.1).abs().max() < 5 * math.sqrt(0.09 / MANY)


def test_random_timesteps_stay_in_range_when_rounded_up(monkeypatch):
    monkeypatch.setattr(torch, "rand", torch.ones)
    assert random_timesteps(torch.zeros(3, 1), 10).tolist() == [9, 9, 9]


def test_forward_process():
    torch.manual_seed(0)
    x = torch.tensor([[2.0], [-1.0]]).repeat_interleave(MANY, 0)
    x_t = noised(x, torch.randn_like(x), torch.tensor([0.81, 0.36]).repeat_interleave(MANY)).view(2, MANY)
    close(x_t.mean(1), [0.9 * 2, -0.6], atol=5 / math.sqrt(MANY))
    close(x_t.var(1), [0.19, 0.64], rtol=5 * math.sqrt(2 / MANY), atol=0)


def test_forward_process_goes_from_image_to_noise():
    x, noise = images(2), images(4)[2:]
    assert torch.equal(noised(x, noise, torch.ones(2, dtype=torch.float64)), x)
    assert torch.equal(noised(x, noise, torch.zeros(2, dtype=torch.float64)), noise)


@pytest.mark.parametrize("steps", [1000, 50])
def test_schedule_is_the_squared_cosine(steps):
    """Nichol and Dhariwal 2021, Eq. 17; their cap on beta touches only the last steps."""
    alphas = cosine_alphas_cumprod(steps)
    times = (torch.arange(steps, dtype=torch.float64) + 1) / steps
    cosine = (((times + 0.008) / 1.008) * math.pi / 2).cos().square() / math.cos(0.008 / 1.008 * math.pi / 2) ** 2
    close(alphas, cosine.numpy(), atol=1e-5)
    assert (alphas.diff() < 0).all()
    assert alphas.min() > 0


@pytest.mark.parametrize("count", [1, 2, 5, 8])
def test_antithetic_noise(count):
    noise = antithetic_noise(count, (2, 3))
    assert noise.shape == (count, 2, 3)
    assert torch.equal(noise[1::2], -noise[0::2][: count // 2])
    assert noise[0::2].flatten().unique().numel() == 6 * ((count + 1) // 2)


def test_antithetic_noise_is_standard_normal():
    torch.manual_seed(0)
    noise = antithetic_noise(MANY, (1,))[::2]
    close(noise.mean(), 0.0, atol=5 / math.sqrt(MANY / 2))
    close(noise.var(), 1.0, atol=5 * math.sqrt(2 / (MANY / 2)))


@torch.no_grad()
def test_logits_agree_with_a_plain_loop():
    method, x = tiny(), torch.rand(3, 3, 8, 8)
    expected = torch.zeros(3, 3)
    for i in range(3):
        for c in range(3):
            for t, noise in zip(method.scoring_t.tolist(), method.scoring_noise, strict=True):
                a = float(method.alphas_cumprod[t])
                x_t = math.sqrt(a) * (2 * x[i] - 1) + math.sqrt(1 - a) * noise
                out = method.denoiser.unet(x_t.unsqueeze(0), torch.tensor([t]), torch.tensor([c])).sample[0]
                expected[i, c] -= ((out - noise) ** 2).sum() / 3
    close(method.logits(x), (expected - math.log(3)).numpy(), rtol=1e-5)
    assert (expected.std(1) > 1e-3).all()  # classes do differ


@torch.no_grad()
@pytest.mark.parametrize("pixels", [1, 3 * 64 * 2])
def test_logits_in_chunks_are_the_same(pixels, monkeypatch):
    method, x = tiny(), torch.rand(5, 3, 8, 8)
    together, largest = method.logits(x), []
    monkeypatch.setattr(diffusion, "SCORING_PIXELS_CPU", pixels)
    method.denoiser.register_forward_pre_hook(lambda _, inputs: largest.append(len(inputs[0])))
    close(method.logits(x), together.numpy())
    assert max(largest) == max(3, pixels // 64)


def test_loss_is_the_error_of_the_predicted_noise():
    method, x, y = tiny(diffusion_steps=20), torch.rand(6, 3, 8, 8), torch.arange(6) % 3
    torch.manual_seed(4)
    loss = method.loss(TrainBatch(x, y, torch.arange(6)))["loss"]
    torch.manual_seed(4)
    t, noise = (20 * torch.rand(6)).long(), torch.randn(6, 3, 8, 8)
    a = method.alphas_cumprod[t].view(-1, 1, 1, 1)
    out = method.denoiser.unet(a**0.5 * (2 * x - 1) + (1 - a) ** 0.5 * noise, t, y).sample
    close(loss, ((out - noise) ** 2).mean().item())


@torch.no_grad()
def test_prior():
    x = torch.rand(2, 3, 8, 8)
    uniform = tiny(counts=(30, 10, 0)).logits(x)
    empirical = tiny(counts=(30, 10, 0), prior="empirical").logits(x)
    shift = empirical - uniform + math.log(1 / 3)
    close(shift[:, :2], [[math.log(0.75), math.log(0.25)]] * 2, atol=1e-4)
    assert torch.isfinite(empirical).all()
    assert (shift[:, 2] < math.log(0.25) - 1).all()  # a class never seen is less likely than a rare one


@torch.no_grad()
@pytest.mark.parametrize(
    ("shape", "channels"),
    [
        ((3, 28, 28), (8, 8, 8)),
        ((3, 14, 14), (8, 8, 8)),
        ((2, 7, 9), (8, 12, 4)),
        ((1, 5, 16), (6,)),
        ((5, 1, 1), (4, 4, 4)),
        ((3, 9, 64), (3, 5)),
    ],
)
def test_any_size(shape, channels):
    method, x = tiny(shape, classes=2, unet_channels=channels), torch.rand(2, *shape)
    terms = method.loss(TrainBatch(x, torch.arange(2), torch.arange(2)))
    assert torch.isfinite(terms["loss"])
    logits = method.logits(x)
    assert logits.shape == (2, 2)
    assert torch.isfinite(logits).all()
    assert method.denoiser(x, torch.tensor([0, 999]), torch.arange(2)).shape == x.shape


@pytest.mark.parametrize("size", [(28, 28), (14, 14), (7, 9), (1, 5), (30, 31)])
def test_crop_undoes_the_padding(size):
    model, seen = ConditionalUNet((3, *size), 2, (4, 4, 4), 1), []

    class Echo(torch.nn.Module):
        def forward(self, x: Tensor, t: Tensor, y: Tensor, return_dict: bool) -> tuple[Tensor]:
            seen.append(x)
            return (x,)

    model.unet, x = Echo(), torch.rand(2, 3, *size)
    assert torch.equal(model(x, torch.zeros(2), torch.zeros(2)), x)
    assert all(padded % 4 == 0 and padded - side < 4 for padded, side in zip(seen[0].shape[2:], size, strict=True))


@pytest.mark.parametrize(
    ("channels", "groups"), [((32, 64, 64), 8), ((128, 256), 32), ((8,), 2), ((12, 20), 1), ((3, 5), 1), ((512,), 32)]
)
def test_groups_divide_every_width(channels, groups):
    assert norm_groups(channels) == groups


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"scoring_pairs": 11, "diffusion_steps": 10}, "scoring_pairs can be at most the 10 diffusion_steps"),
        ({"unet_channels": [32, 1]}, "every width in unet_channels must be at least 2"),
        ({"unet_channels": []}, "method.unet_channels"),
    ],
)
def test_settings_that_cannot_work_are_refused(options, message):
    with pytest.raises(ConfigError, match=message):
        run_config({"data": {"name": "color_mnist"}, "method": {"name": "diffusion", **options}})


@pytest.mark.parametrize("module", ["diffusers.models.unets.unet_2d", "diffusers.schedulers.scheduling_ddpm"])
def test_missing_diffusers_names_the_command(module, monkeypatch):
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ConfigError, match=r'pip install "sitar\[diffusion\]"'):
        tiny()
