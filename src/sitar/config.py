"""Settings are typed, frozen and complete. Unknown keys are refused."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator
from pydantic_core import PydanticCustomError

from sitar.earlier import todays_settings, why_refused
from sitar.errors import ConfigError
from sitar.registry import DATASETS, METHODS, did_you_mean, metrics
from sitar.splits import VAL, Split
from sitar.yaml_text import read_yaml

MOST = 10**9  # epochs, steps, units: with larger numbers arithmetic of floats fails
YAML_SIGNS = ("*", "&", "!", "%", "@", "`")  # a value that begins with one is text only in quotes
LAST = "last"  # the value of train.selection that keeps the last epoch


class Config(BaseModel):
    """This is the base of all settings. They are frozen, and unknown keys, NaN and infinity are refused."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", allow_inf_nan=False, validate_by_name=True, validate_by_alias=True
    )
    refused: ClassVar[Mapping[str, str]] = {}  # keys that similar classes have, and why this one does not


def one_of(names: Callable[[], Iterable[str]]) -> AfterValidator:
    """Allow the names that `names` returns when the setting is read. For another name, suggest the closest one."""

    def check(value: str) -> str:
        known = list(names())
        if value not in known:
            message = f"{did_you_mean(value, known)} Allowed are {', '.join(known)}".strip()
            raise PydanticCustomError("unknown_name", "{message}", {"message": message})
        return value

    return AfterValidator(check)


class NamedConfig(Config):
    """This is the base of the settings of a dataset or a method. The name says which one."""

    name: Any  # a string, of which every subclass allows one: its own


class ModelConfig(Config):
    """These settings describe the networks that all methods share, so that a comparison of methods is fair."""

    latent_dim: int | None = Field(
        default=10,
        gt=0,
        le=MOST,
        description="number of latent axes (d); null: a quarter of the features, 10 for pixels",
    )
    channels: tuple[int, ...] | None = Field(
        default=None,
        min_length=1,
        description="width of each convolution; null derives depth and widths from the image",
    )
    head_hidden: int | None = Field(
        default=None,
        gt=0,
        le=MOST,
        description="hidden units of the posterior's heads in pixel space, which are then MLPs; null: linear heads",
    )
    feature_hidden: int | None = Field(
        default=None,
        gt=0,
        le=MOST,
        description="hidden units of both layers that encode features; null: half and a quarter of the features, the "
        "paper, which is narrow for few features",
    )
    hidden: int = Field(default=128, gt=0, le=MOST, description="hidden units of the classifier")
    activation: Literal["gelu", "relu"] = Field(default="gelu", description="activation of the classifier")
    encoder: str | None = Field(
        default=None, description="a network of timm in front, such as resnet50.tv_in1k; null: images as they are"
    )
    encoder_weights: str = Field(
        default="hub", min_length=1, description="hub, random, or a file (.safetensors, or a state dict of torch)"
    )
    stride_in_1x1: bool = Field(
        default=False, description="of ResNet weights with the stride in the first 1x1 convolution (Caffe, Keras)"
    )
    freeze_encoder: bool = Field(
        default=False, description="the encoder's features are computed once and kept; else it is trained with the rest"
    )

    @model_validator(mode="after")
    def _positive(self) -> ModelConfig:
        if self.channels is not None and min(self.channels) < 1:
            raise ValueError("every width in channels must be at least 1")
        if self.channels is not None and max(self.channels) > MOST:
            raise ValueError(f"no width in channels may be more than {MOST:,}")
        given = {"freeze_encoder": self.freeze_encoder, "stride_in_1x1": self.stride_in_1x1}
        given["encoder_weights"] = self.encoder_weights not in ("hub", "random")
        if self.encoder is None and any(given.values()):
            name = next(name for name, is_given in given.items() if is_given)
            raise ValueError(f"{name} says something of an encoder, and there is none: set model.encoder")
        return self

    @property
    def axes(self) -> int:
        """Return the number of latent axes. It must be known by now, from the settings or from the data."""
        assert self.latent_dim is not None
        return self.latent_dim


def selections() -> list[str]:
    """Name the rules that choose an epoch: the last one, or the best one by a metric of val."""
    return [LAST, *(f"{VAL}_{metric.name}" for metric in metrics().values() if metric.selects)]


Tracker = Literal["tensorboard", "wandb", "mlflow"]
DataOn = Literal["auto", "device", "host"]
_one_or_more = BeforeValidator(lambda value: [value] if isinstance(value, str) else value)


class TrainConfig(Config):
    """These settings say how a method is optimised, watched and stopped."""

    epochs: int = Field(default=80, gt=0, le=MOST)
    least_steps: int = Field(
        default=0, ge=0, le=MOST, description="small data has more epochs, until there are this many steps"
    )
    batch_size: int = Field(default=512, gt=1, le=MOST)
    optimiser: Literal["adam", "adamw", "sgd"] = "adam"
    learning_rate: float = Field(default=1e-3, gt=0)
    weight_decay: float = Field(default=0.0, ge=0)
    momentum: float = Field(default=0.9, ge=0, lt=1, description="of SGD only")
    schedule: Literal["constant", "linear", "cosine"] = Field(
        default="constant", description="linear and cosine fall to zero at the end of a phase"
    )
    warmup_epochs: float = Field(default=0.0, ge=0, description="epochs over which the learning rate rises linearly")
    augment: Literal["none", "crop_flip"] = Field(
        default="none", description="crop_flip: random crops of 70 to 100 % of the area, resized, half of them flipped"
    )
    gradient_clip: float | None = Field(default=None, gt=0, description="largest norm of the gradient")
    precision: Literal["float32", "tf32", "bfloat16"] = Field(
        default="float32",
        description="tf32: matrix products and convolutions on a GPU round their factors; bfloat16: mixed precision",
    )
    deterministic: bool = Field(
        default=False, description="the same run on the same GPU gives the same bytes, as it does on a CPU anyway"
    )
    step: Literal["auto", "eager", "captured"] = Field(
        default="auto", description="captured: the whole step as one CUDA graph; auto: captured on a CUDA device"
    )
    compile: bool = Field(
        default=False, description="the loss is compiled first, which takes a while; then a step on a GPU is faster"
    )
    data_on: DataOn = Field(
        default="auto",
        description="where the training data lies while a GPU trains; auto: on it if it fits, else on the host, from "
        "where batches are fed",
    )
    shuffle: Literal["samples", "blocks"] = Field(
        default="samples",
        description="blocks: an order that reads data larger than memory in runs of rows, mixed within 65,536 of them",
    )
    selection: Annotated[str, one_of(selections)] = Field(
        default=LAST, description="which epoch's weights are kept: the last one's, or the best ones' by a metric of val"
    )
    average_epochs: int = Field(
        default=1,
        gt=0,
        le=MOST,
        description="the weights that are evaluated and kept are a mean over this many last epochs; older ones fade; "
        "1: no mean",
    )
    patience: int | None = Field(
        default=None, gt=0, le=MOST, description="stop after this many evaluations without a better selection criterion"
    )
    evaluate: tuple[Split, ...] = Field(
        default=("val",), description="splits evaluated while training, where they exist"
    )
    evaluate_every: int = Field(
        default=1, gt=0, le=MOST, description="epochs between evaluations; the last epoch always is one"
    )
    checkpoint_seconds: float = Field(default=10.0, ge=0, description="least time between checkpoints while training")
    log: Annotated[tuple[Tracker, ...], _one_or_more] = Field(
        default=(), description="trackers that are shown the run while it trains, such as [tensorboard, wandb]"
    )

    @model_validator(mode="after")
    def _consistent(self) -> TrainConfig:
        if self.warmup_epochs >= self.epochs:
            raise ValueError(f"warmup_epochs {self.warmup_epochs:g} must be fewer than the {self.epochs} epochs")
        if self.patience is not None and self.selection == LAST:
            raise ValueError("patience needs a criterion to watch: set train.selection to one that reads a val split")
        if self.selection != LAST and "val" not in self.evaluate:
            raise ValueError(f"selection {self.selection!r} reads the val split: train.evaluate must contain 'val'")
        return self


RefitFeatures = Literal["latent", "hidden", "encoder"]


class RefitConfig(Config):
    """These settings say to which answers the last layer of a finished run was fitted again (`sitar refit`)."""

    features: RefitFeatures = Field(description="what the new layer reads")
    answers: int = Field(gt=0, le=MOST, description="how many answers")
    digest: str = Field(min_length=1, description="of the images and answers: other answers make another run")


class Identity(Config):
    """The identity says which preset a run has, and which seed."""

    preset: str
    seed: int = Field(default=0, ge=0, lt=2**32)


class RunConfig(Identity):
    """These settings decide everything about a run. The class that `name` names validates `data` and `method`."""

    data: NamedConfig
    model: ModelConfig
    method: NamedConfig
    train: TrainConfig
    refit: RefitConfig | None = None  # only in runs that `sitar refit` has made of others

    def to_dict(self) -> dict[str, Any]:
        """Return all settings as plain values, under the keys that a user writes."""
        present = [key for key in (*_SECTIONS, _REFIT) if getattr(self, key) is not None]
        sections = {key: getattr(self, key).model_dump(mode="json", by_alias=True) for key in present}
        return {"preset": self.preset, "seed": self.seed, **sections}


_SECTIONS = ("data", "model", "method", "train")
_REFIT = "refit"  # a section that most runs do not have


def run_config(raw: Mapping[str, Any], *, preset: str | None = None, seed: int | None = None) -> RunConfig:
    """Build a complete, valid configuration from plain values. One error lists every problem."""
    raw = dict(raw)
    raw["preset"] = preset if preset is not None else raw.get("preset", "custom")
    raw["seed"] = seed if seed is not None else raw.get("seed", 0)
    problems = [_unknown_key(str(key), RunConfig, str(key)) for key in raw if key not in RunConfig.model_fields]
    for section in (*_SECTIONS, *([_REFIT] if raw.get(_REFIT) is not None else [])):
        value = {} if raw.get(section) is None else raw[section]
        if not isinstance(value, Mapping):
            problems.append(f"{section}: expected settings (key: value), got {value!r}.")
            continue
        try:
            raw[section] = section_config(section, value)
        except ConfigError as error:
            problems.append(str(error))
    try:
        Identity(preset=raw["preset"], seed=raw["seed"])
    except ValidationError as error:
        problems += [_describe("", Identity, problem) for problem in error.errors()]
    if problems:
        raise ConfigError("\n".join(problems))
    return RunConfig.model_validate(raw)


def section_config(section: str, value: Mapping[str, Any]) -> Config:
    """Return the valid settings of one section alone, such as "data". One error lists every problem."""
    cls = _section_class(section, value)
    settings = todays_settings(section, {str(key): item for key, item in value.items()})
    try:
        return cls.model_validate(settings)
    except ValidationError as error:
        raise ConfigError("\n".join(_describe(section, cls, problem) for problem in error.errors())) from error


def _section_class(section: str, value: Mapping[str, Any]) -> type[Config]:
    if section == "model":
        return ModelConfig
    if section == "train":
        return TrainConfig
    if section == _REFIT:
        return RefitConfig
    registry = {"data": DATASETS, "method": METHODS}[section]
    name = value.get("name")
    if name is None:
        raise ConfigError(f"{section}.name is missing. Known: {', '.join(registry.names())}.")
    return registry.get(str(name)).Config


def _describe(section: str, cls: type[Config], problem: Any) -> str:
    """Describe one problem of pydantic in one line: where it is, what was given, and what is allowed."""
    where = ".".join(str(part) for part in (section, *problem["loc"]) if part != "")
    if problem["type"] == "extra_forbidden":
        key = str(problem["loc"][-1])
        name = cls.model_fields["name"].default if issubclass(cls, NamedConfig) else None
        if reason := why_refused(section, name, key, problem["input"]):
            return f"{section}: {reason}."
        if reason := cls.refused.get(key):
            return f"{where} is not allowed with {section}.name={name}: {reason}."
        return _unknown_key(where, cls, key)
    message = problem["msg"].removeprefix("Value error, ")
    if problem["type"] == "value_error":
        return f"{where}: {message}."
    return f"{where} = {problem['input']!r} is not allowed: {message[0].lower() + message[1:]}."


def _unknown_key(where: str, cls: type[Config], key: str) -> str:
    names = [field.alias or name for name, field in cls.model_fields.items() if name != _REFIT]
    return f"Unknown key {where!r}.{did_you_mean(key, names)} Allowed here: {', '.join(names)}."


def apply_overrides(raw: Mapping[str, Any], overrides: Iterable[str]) -> dict[str, Any]:
    """Return a copy of `raw` in which each `section.key=value` is set. Values are read as YAML."""
    result = copy.deepcopy(dict(raw))
    for override in overrides:
        key, equals, text = override.partition("=")
        path = key.strip().split(".")
        if path[0] == "preset":
            raise ConfigError(f"--set {override!r}: a preset is named by the argument, not by a setting.")
        if not equals or not all(path):
            raise ConfigError(f"--set {override!r} is not of the form key=value, such as method.alpha=0.5.")
        try:
            value = read_yaml(text)
        except ValueError as error:
            quoted = f" Put it in quotes: --set '{key}=\"{text}\"'." if text.startswith(YAML_SIGNS) else ""
            raise ConfigError(f"--set {override!r}: the value is not valid YAML.{quoted}") from error
        target = result
        for part in path[:-1]:
            if target.get(part) is None:
                target[part] = {}
            target = target[part]
            if not isinstance(target, dict):
                raise ConfigError(f"--set {override!r}: {part!r} holds a value, not settings.")
        target[path[-1]] = value
    return result
