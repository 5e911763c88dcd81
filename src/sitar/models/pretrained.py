"""Pretrained image encoders are networks of timm without their head. Weights come from the hub or a local file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
from jaxtyping import Float
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from sitar.devices import forked_random_state
from sitar.errors import ConfigError
from sitar.files import user_path
from sitar.models.hub import cannot_be_had, described_by_timm, weights_on_this_machine

HUB, RANDOM = "hub", "random"


class PretrainedEncoder(nn.Module):
    """The encoder turns images in [0, 1] into `out_features`. It normalises them as its weights expect."""

    mean: Tensor
    std: Tensor

    def __init__(self, name: str, shape: Sequence[int], weights: str = HUB, *, stride_in_1x1: bool = False) -> None:
        super().__init__()
        self.network = _create(name, from_hub=weights == HUB)
        if stride_in_1x1:
            _move_stride(self.network, name)
        if weights not in (HUB, RANDOM):
            _load(self.network, user_path(weights), name)
        self.out_features = _width(self.network, name, shape)
        expected = self.network.pretrained_cfg  # type: ignore[union-attr]
        for key in ("mean", "std"):
            self.register_buffer(key, torch.tensor(expected[key]).view(1, 3, 1, 1), persistent=False)  # type: ignore[index]
        self.network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def forward(self, x: Float[Tensor, "batch 3 height width"]) -> Float[Tensor, "batch feature"]:
        x = ((x - self.mean) / self.std).contiguous(memory_format=torch.channels_last)
        return self.network(x)


def encoder_features(name: str, shape: Sequence[int]) -> int:
    """Return how many features a network of timm makes of images of a shape. The random state is not touched."""
    with forked_random_state():
        return _width(_create(name, from_hub=False), name, shape)


def expected_size(name: str) -> int:
    """Return the side of the images that a network of timm was trained with."""
    return described_by_timm(name).input_size[-1]


def _width(network: nn.Module, name: str, shape: Sequence[int]) -> int:
    """Find the number of outputs by a trial, because what networks say of themselves is not always right."""
    if shape[0] != 3:
        raise ConfigError(f"model.encoder needs images of three channels, and these have {shape[0]}.")
    was_training = network.training
    try:
        with torch.no_grad():
            return network.eval()(torch.zeros(1, *shape)).shape[1]
    except Exception as error:  # networks raise different errors for a size that they cannot read
        size = network.pretrained_cfg["input_size"][-1]  # type: ignore[index]
        raise ConfigError(
            f"model.encoder {name!r} cannot read images of {shape[1]}x{shape[2]} ({error}). It was trained with "
            f"data.image_size={size}."
        ) from error
    finally:
        network.train(was_training)


def _create(name: str, *, from_hub: bool) -> nn.Module:
    import timm

    described_by_timm(name)
    try:
        file = weights_on_this_machine(name) if from_hub else None
        overlay = {"file": file} if file is not None else None
        return timm.create_model(name, pretrained=from_hub, num_classes=0, pretrained_cfg_overlay=overlay)
    except ConfigError:
        raise
    except Exception as error:  # it is not specified what the hub's client raises
        raise cannot_be_had(name, f"{type(error).__name__}: {error}") from error


def check_weights(name: str, weights: str) -> None:
    """Refuse weights that are not there, before anything slow is done for them."""
    described_by_timm(name)
    if weights == HUB:
        weights_on_this_machine(name)
    elif weights != RANDOM and not user_path(weights).is_file():
        raise ConfigError(f"model.encoder_weights {weights!r} is not a file.")


def _load(network: nn.Module, path: Path, name: str) -> None:
    """Load weights from a file by the names of timm. A classification head in it is left out."""
    try:
        given = load_file(path) if path.suffix == ".safetensors" else torch.load(path, "cpu", weights_only=True)
    except (OSError, SafetensorError, RuntimeError, ValueError, EOFError) as error:
        raise ConfigError(f"model.encoder_weights {str(path)!r} cannot be read: {error}.") from error
    except Exception as error:  # a pickle with more than tensors
        raise ConfigError(
            f"model.encoder_weights {str(path)!r} holds more than tensors, and is not opened for safety. Save the "
            "state dict alone, best as .safetensors."
        ) from error
    if not isinstance(given, dict) or not all(isinstance(value, Tensor) for value in given.values()):
        raise ConfigError(f"model.encoder_weights {str(path)!r} holds no state dict: names and tensors.")
    wanted = network.state_dict()
    missing = [key for key in wanted if key not in given and not key.endswith("num_batches_tracked")]
    wrong = [key for key in wanted if key in given and given[key].shape != wanted[key].shape]
    if missing or wrong:
        what = f"lacks {len(missing)} of {len(wanted)} tensors" if missing else f"has {len(wrong)} of another shape"
        raise ConfigError(
            f"model.encoder_weights {str(path)!r} does not fit {name!r}: it {what}, such as {(missing or wrong)[0]!r}."
        )
    network.load_state_dict({key: given[key].to(wanted[key].dtype) for key in wanted if key in given}, strict=False)


def _move_stride(network: nn.Module, name: str) -> None:
    """Let a stage halve the image in its first 1x1 convolution.

    The first ResNets, and their Caffe and Keras weights, have the stride there.
    """
    stages = [getattr(network, f"layer{i}", None) for i in (2, 3, 4)]
    for stage in stages:
        block = stage[0] if isinstance(stage, nn.Sequential) else None
        first, second = getattr(block, "conv1", None), getattr(block, "conv2", None)
        if not (isinstance(first, nn.Conv2d) and isinstance(second, nn.Conv2d) and first.kernel_size == (1, 1)):
            raise ConfigError(
                f"model.stride_in_1x1 is for ResNets with bottlenecks, such as resnet50; {name!r} has none."
            )
        first.stride, second.stride = (2, 2), (1, 1)
