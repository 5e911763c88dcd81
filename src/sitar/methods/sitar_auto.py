"""Auto trains ERM, the control, SITAR and SITAR along a bank of properties of the pixels, and chooses one of them.

The rule is ours. It reads the training split alone. Noise is for images whose properties, as plain numbers, tell the
label about as well as the latent of the control does, which no noise has moved: then there is a simple cue. The bank is
chosen there if it has learned without them, and else SITAR where the gate on this latent is open. Features have no such
properties, and the gate decides. Candidates with noise keep their last epoch: val has the shortcut too, and prefers an
epoch that follows it. docs/methods/sitar_auto.md says what was measured, and what no rule of this kind can know.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Annotated, Any, Literal

import torch
from pydantic import BeforeValidator, Field, model_validator
from torch import Tensor
from torch.nn.functional import one_hot

from sitar.config import LAST, ModelConfig, one_of
from sitar.data.nuisances import BANK
from sitar.data.rows import rows_at
from sitar.data.types import Nuisances, Task, TrainBatch, TrainSplit, in_batches, observed
from sitar.functional.gate import MOST_SAMPLES, TAU, Reading, usable_information
from sitar.functional.losses import cross_entropy
from sitar.functional.noise import NOISES
from sitar.functional.precision import in_float64
from sitar.methods.base import FitPhase, GradientPhase, NetworkMethod, Objective, Phase, WeightedConfig
from sitar.methods.sitar import SITAR, SITARConfig
from sitar.registry import METHODS

logger = logging.getLogger(__name__)
LEARNED = 1 / 3  # of what ERM has learned of the training samples: a candidate that has less is not chosen
TARGETED = [noise.name for noise in NOISES.values() if noise.has_target]
CANDIDATES = ["erm", "control", "sitar", "bank"]
WITH_NOISE = CANDIDATES[2:]
IN_WORDS = {"erm": "ERM", "sitar": "SITAR", "bank": "SITAR along the bank"}


class AutoConfig(WeightedConfig):
    name: Literal["sitar_auto"] = "sitar_auto"
    noise: Annotated[str, one_of(lambda: TARGETED)] = Field(
        default="axis", description="of SITAR, and of the gate, which asks about the part that this noise acts on"
    )
    alpha: float = Field(default=1.0, gt=0, description="strength of SITAR's noise")
    beta: float = Field(default=2.0, ge=0, description="weight of the KL divergence")
    lambda_: float = Field(default=10.0, gt=0, alias="lambda", description="weight of SITAR's consistency term")
    vae_scale: Literal["sum", "mean"] = Field(default="sum", description="as of sitar")
    nuisances: Annotated[
        tuple[str, ...], BeforeValidator(lambda value: [value] if isinstance(value, str) else value)
    ] = Field(default=(), description="what to ignore, as of sitar; there is no bank then")
    bank: bool = Field(
        default=True,
        description=f"whether noise along {', '.join(BANK)} is a candidate too; features have no such properties",
    )

    @model_validator(mode="after")
    def _as_sitar(self) -> AutoConfig:
        self.candidate()  # which refuses what does not go together
        return self

    def candidate(self, **changed: Any) -> SITARConfig:
        """Return the settings of SITAR, or with alpha and lambda 0 those of the control."""
        return SITARConfig(**{**self.model_dump(by_alias=True, exclude={"name", "bank"}), **changed})


@METHODS.register("sitar_auto")
class Auto(NetworkMethod):
    """`network` is ERM's, and answers. A candidate that is chosen gives it encoder and classifier, which are alike."""

    Config = AutoConfig
    config: AutoConfig
    readings: Tensor  # of each with noise: what the control's latent, the suspects (or properties) and the rest tell
    learned: Tensor  # by each of them, as a share of what ERM has learned
    steady: Tensor  # share of classes that stay under its noise: its own, and those of the control
    epochs: Tensor  # that each candidate keeps
    chosen: Tensor  # the place of a candidate

    def __init__(self, config: AutoConfig, model: ModelConfig, task: Task) -> None:
        super().__init__(config, model, task)
        self.num_classes = task.num_classes
        pixels = len(task.shape) == 3 or model.freeze_encoder
        bank = BANK if config.bank and pixels and not config.nuisances else ()
        self.control = SITAR(
            config.candidate(alpha=0, nuisances=config.nuisances or bank, **{"lambda": 0}), model, task
        )
        self.sitar = SITAR(config.candidate(), model, task)
        self.bank = SITAR(config.candidate(nuisances=bank), model, task) if bank else None
        self.running = "erm"  # the phase
        self.register_buffer("readings", torch.zeros(len(WITH_NOISE), 3))
        self.register_buffer("learned", torch.zeros(len(WITH_NOISE)))
        self.register_buffer("steady", torch.zeros(len(WITH_NOISE), 2))
        self.register_buffer("epochs", torch.zeros(len(CANDIDATES)))
        self.register_buffer("chosen", torch.zeros(()))

    @property
    def with_noise(self) -> dict[str, SITAR]:
        """Return the candidates that have noise, by name."""
        return {"sitar": self.sitar} | ({} if self.bank is None else {"bank": self.bank})

    def phases(self) -> Iterator[Phase]:
        self.running = "erm"
        yield GradientPhase("erm", (Objective(self.loss, list(self.network.parameters())),))
        self.running = "control"
        yield GradientPhase("control", _objectives(self.control), logits=self.control.logits)
        for name, candidate in self.with_noise.items():
            self.running = name
            yield GradientPhase(name, _objectives(candidate), logits=candidate.logits, select=False)
        self.running = "choose"
        yield FitPhase("choose", self.choose)

    def observe(self, train: TrainSplit, nuisances: Nuisances | None) -> None:
        """Let the candidate look that is trained, and at the end the control, whose latent the gate asks."""
        looking = {**self.with_noise, "choose": self.control}.get(self.running)
        if looking is not None and looking.config.nuisances:
            looking.observe(train, nuisances)

    def begin_epoch(self, epoch: int) -> None:
        self.epochs[CANDIDATES.index(self.running)] = epoch + 1

    def loss(self, batch: TrainBatch) -> dict[str, Tensor]:
        return {"loss": cross_entropy(self.network(batch.x), batch.y, self.class_weight)}

    @torch.no_grad()
    def choose(self, train: TrainSplit) -> None:
        """Read the gate, and let the chosen candidate answer."""
        erm = self._above_chance(self.network, train)
        self.control.evaluation_batch = self.evaluation_batch
        for place, candidate in enumerate(self.with_noise.values()):
            candidate.evaluation_batch = self.evaluation_batch
            along = bool(candidate.config.nuisances)
            reading = self.control.reading(train, along)
            if candidate is self.bank:
                reading = replace(reading, suspects=self._told_by_properties(train).to(reading.whole))
            self.readings[place] = torch.stack([reading.whole, reading.suspects, reading.rest])
            self.learned[place] = self._above_chance(candidate.logits, train) / max(erm, 1e-8)
            steady = [of.steadiness(train, self.config.alpha, along) for of in (candidate, self.control)]
            self.steady[place] = torch.tensor(steady)
        self._answer(self._choice())
        logger.info(self._in_words())

    def _told_by_properties(self, train: TrainSplit) -> Tensor:
        """Return what the properties of the bank tell about the label by themselves.

        The part of the latent that varies with them would not do. A latent of many axes tells along a few directions
        nearly all that it tells, whichever these are (docs/decisions.md).
        """
        if self.control.table is None:  # nobody has looked at them: training does before every fit
            return torch.zeros(())
        places = observed(len(train)).to(self.control.table.device)[:MOST_SAMPLES]
        values = in_float64(self.control.table[places])
        return usable_information(values, train.y[places].to(values.device), self.num_classes)

    def _choice(self) -> str:
        """Return the candidate that the rule takes."""
        for name in reversed(self.with_noise):  # the bank before SITAR
            if self._is_open(name) and self._has_learned(name):
                return name
        return "erm"

    def _is_open(self, name: str) -> bool:
        """Say whether the gate lets a candidate pass. That of the bank does not ask the rest, and SITAR passes both."""
        reading = self._reading(name)
        if name == "bank":
            return bool(reading.suspected >= TAU)
        return bool(reading.share >= TAU) and (self.bank is None or self._is_open("bank"))

    def _has_learned(self, name: str) -> bool:
        return bool(self.learned[WITH_NOISE.index(name)] >= LEARNED)

    def _reading(self, name: str) -> Reading:
        return Reading(*self.readings[WITH_NOISE.index(name)])

    def _answer(self, name: str) -> None:
        """Give the network that answers the weights of the chosen candidate."""
        self.chosen.fill_(CANDIDATES.index(name))
        if name in self.with_noise:
            chosen = self.with_noise[name]
            for part in ("backbone", "encoder", "mean"):
                getattr(self.network, part).load_state_dict(getattr(chosen.vae, part).state_dict())
            self.network.classifier.load_state_dict(chosen.classifier.state_dict())

    def _above_chance(self, logits_of: Callable[[Tensor], Tensor], train: TrainSplit) -> float:
        """Return the class-balanced accuracy on training samples: 0 at chance, 1 where all are right."""
        places = observed(len(train)).to(train.y.device)
        y = train.y[places]
        logits = in_batches(logits_of, rows_at(train.x, places), y.device, self.evaluation_batch)
        of_class = one_hot(y, self.num_classes).float()
        right, size = (logits.argmax(1) == y).float() @ of_class, of_class.sum(0)
        accuracy = (right / size)[size > 0].mean()
        chance = 1 / self.num_classes
        return float((accuracy - chance) / (1 - chance))

    def _in_words(self) -> str:
        words = [f"{IN_WORDS[CANDIDATES[int(self.chosen)]]} was chosen."]
        for name in reversed(self.with_noise):
            reading, learned = self._reading(name), self.learned[WITH_NOISE.index(name)].item()
            found = reading.in_words()
            if name == "bank":
                found = (
                    "Of what the latent tells about the label, the properties alone hold "
                    f"{reading.suspected.item():.2f}, and {TAU:g} is the least."
                )
            if name == "sitar" and self.bank is not None and not self._is_open("bank"):
                found += " And the properties must tell enough."
            words.append(f"{IN_WORDS[name]}: its gate is {'open' if self._is_open(name) else 'closed'}. {found}")
            if self._is_open(name):
                verdict = "" if self._has_learned(name) else ", so it has learned too little"
                words.append(
                    f"It is above chance by {learned:.2f} of what ERM is, on training samples, and {LEARNED:.2f} is "
                    f"the least{verdict}."
                )
        if self.config.bank and self.bank is None and not self.config.nuisances:
            words.append("There are no pixels, so there is no bank of their properties.")
        return " ".join(words)

    def why_no_vae(self) -> str:
        name = CANDIDATES[int(self.chosen)]
        of_a_vae = ". Its encoder and its classifier answer, without a decoder."
        return f"{IN_WORDS[name]} was chosen{of_a_vae if name in WITH_NOISE else ', which has no VAE.'}"

    def facts(self) -> dict[str, Any]:
        """Return what was chosen and why. The epoch, and the rule that keeps it, are those of the chosen candidate."""
        found = {
            name: {
                **dict(zip(("whole", "suspects", "rest"), self.readings[place].tolist(), strict=True)),
                "learned": self.learned[place].item(),
                **dict(zip(("steady", "control_steady"), self.steady[place].tolist(), strict=True)),
            }
            for place, name in enumerate(self.with_noise)
        }
        chosen, epochs = int(self.chosen), [int(epoch) for epoch in self.epochs.tolist()]
        kept = {name: epoch for name, epoch in zip(CANDIDATES, epochs, strict=True) if epoch}
        about = {"chosen": CANDIDATES[chosen], "tau": TAU, "epochs": kept, "candidates": found}
        rule = {"selection": LAST} if CANDIDATES[chosen] in WITH_NOISE else {}
        return {**rule, "selected_epoch": epochs[chosen], "auto": {**about, "words": self._in_words()}}


def _objectives(candidate: SITAR) -> tuple[Objective, ...]:
    (phase,) = candidate.phases()
    assert isinstance(phase, GradientPhase)
    return phase.objectives
