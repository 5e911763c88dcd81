"""What auto chooses, and that the chosen candidate is the one that answers."""

from __future__ import annotations

import logging
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from helpers.runs import TINY_TRAIN, fresh, load_data, run, settings, weights
from sitar.analysis.latents import vae_of
from sitar.data.nuisances import BANK
from sitar.data.types import Task, observed, to_float
from sitar.errors import ConfigError, RunError
from sitar.functional.gate import TAU, Reading, read_gate, usable_information
from sitar.methods import data_for
from sitar.methods.sitar import SITAR
from sitar.methods.sitar_auto import LEARNED, WITH_NOISE, Auto, AutoConfig

CONFIG = settings("sitar_auto", noise="swap")
DATA = load_data(CONFIG.data)
X = to_float(torch.as_tensor(DATA.train.x[:32]))
OPEN, SHUT = (TAU, 0.9), (TAU - 0.01, 0.9)  # what suspects and rest tell


def chosen(
    monkeypatch: pytest.MonkeyPatch, shares: dict[str, tuple[float, float]], learned: dict[str, float] | None = None
) -> tuple[Auto, torch.Tensor]:
    """Let auto choose where gates and candidates say this; the method, and the logits of ERM before."""
    method = fresh(CONFIG, DATA)
    assert isinstance(method, Auto)
    before = method.eval().network(X).detach()
    readings = {name: Reading(*map(torch.tensor, (1.0, *of))) for name, of in shares.items()}
    above = {getattr(method, name).logits: (learned or {}).get(name, 0.9) for name in WITH_NOISE}
    monkeypatch.setattr(method.control, "reading", lambda train, along: readings["bank" if along else "sitar"])
    monkeypatch.setattr(method, "_told_by_properties", lambda train: readings["bank"].suspects)
    monkeypatch.setattr(method, "_above_chance", lambda logits_of, train: above.get(logits_of, 1.0))
    method.choose(DATA.train)
    return method, before


def looking() -> Auto:
    """Auto, before it chooses: the control has looked at the properties of the bank."""
    method = fresh(CONFIG, DATA).eval()
    assert isinstance(method, Auto)
    method.running = "choose"
    method.observe(DATA.train, data_for(CONFIG, DATA).nuisances)
    return method


def test_sitar_answers_where_its_gate_is_open(monkeypatch: pytest.MonkeyPatch) -> None:
    """The properties tell the label, and noise along them has left too little to learn."""
    method, before = chosen(monkeypatch, {"sitar": OPEN, "bank": OPEN}, {"sitar": LEARNED + 1e-6, "bank": 0.0})
    assert torch.equal(method.logits(X), method.sitar.eval().logits(X))
    assert not torch.allclose(method.logits(X), before)
    assert method.facts()["auto"]["chosen"] == "sitar"


def test_explanations_say_which_candidate_has_no_decoder(monkeypatch: pytest.MonkeyPatch) -> None:
    words = {"sitar": "SITAR was chosen. Its encoder and its", "erm": "ERM was chosen, which has no VAE."}
    for name, gate in (("sitar", OPEN), ("erm", SHUT)):
        method, _ = chosen(monkeypatch, {"sitar": gate, "bank": gate}, {"sitar": 1.0, "bank": 0.0})
        model: Any = SimpleNamespace(method=method)
        with pytest.raises(RunError, match=words[name]):
            vae_of(model)


def test_without_a_simple_cue_there_is_no_noise_on_images(monkeypatch: pytest.MonkeyPatch) -> None:
    """A latent of many axes may tell the label twice without any shortcut."""
    method, before = chosen(monkeypatch, {"sitar": OPEN, "bank": SHUT})
    assert torch.equal(method.logits(X), before)
    facts = method.facts()["auto"]
    assert facts["chosen"] == "erm"
    assert facts["words"].count("closed") == 2
    assert "And the properties must tell enough." in facts["words"]


@pytest.mark.parametrize(("share", "name"), [(OPEN, "sitar"), (SHUT, "erm")])
def test_without_a_bank_the_gate_of_sitar_decides_alone(share: Any, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    method = fresh(settings("sitar_auto", noise="swap", bank=False), DATA).eval()
    assert isinstance(method, Auto)
    monkeypatch.setattr(method.control, "reading", lambda train, along: Reading(*map(torch.tensor, (1.0, *share))))
    monkeypatch.setattr(method, "_above_chance", lambda logits_of, train: 1.0)
    method.choose(DATA.train)
    assert method.facts()["auto"]["chosen"] == name


@pytest.mark.parametrize("of_sitar", [OPEN, SHUT])
def test_the_bank_answers_where_its_gate_is_open(monkeypatch: pytest.MonkeyPatch, of_sitar: Any) -> None:
    method, _ = chosen(monkeypatch, {"sitar": of_sitar, "bank": OPEN})
    assert method.bank is not None
    assert torch.equal(method.logits(X), method.bank.eval().logits(X))
    assert method.facts()["auto"]["chosen"] == "bank"


def test_the_rest_is_asked_for_sitar_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the bank has learned shows whether there is something else to learn."""
    half = (0.9, TAU - 0.01)
    method, _ = chosen(monkeypatch, {"sitar": half, "bank": SHUT})
    assert method.facts()["auto"]["chosen"] == "erm"
    method, _ = chosen(monkeypatch, {"sitar": half, "bank": half})
    assert method.facts()["auto"]["chosen"] == "bank"


@pytest.mark.parametrize(("suspects", "rest"), [(TAU - 0.01, 0.9), (0.0, 0.0)])
def test_erm_answers_where_both_gates_are_closed(monkeypatch: pytest.MonkeyPatch, suspects: float, rest: float) -> None:
    method, before = chosen(monkeypatch, dict.fromkeys(WITH_NOISE, (suspects, rest)))
    assert torch.equal(method.logits(X), before)
    facts = method.facts()["auto"]
    assert facts["chosen"] == "erm"
    assert facts["words"].count("closed") == 2
    assert facts["words"].count(f"alone hold {suspects:.2f}") == 2
    assert f"{rest:.2f}" in facts["words"]


def test_a_candidate_that_has_learned_too_little_is_not_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    open_gates = dict.fromkeys(WITH_NOISE, OPEN)
    method, before = chosen(monkeypatch, open_gates, dict.fromkeys(WITH_NOISE, LEARNED - 0.01))
    assert torch.equal(method.logits(X), before)
    assert method.facts()["auto"]["words"].count("learned too little") == 2
    method, _ = chosen(monkeypatch, open_gates, {"bank": LEARNED - 0.01})
    assert method.facts()["auto"]["chosen"] == "sitar"


def test_what_a_candidate_has_learned_is_between_chance_and_certainty(monkeypatch: pytest.MonkeyPatch) -> None:
    method = fresh(CONFIG, DATA)
    assert isinstance(method, Auto)
    y = DATA.train.y
    answers = {"right": y, "one class": torch.zeros_like(y), "wrong": 1 - y}
    found = {}
    for name, answer in answers.items():
        rows = iter(torch.nn.functional.one_hot(answer[observed(len(y))], 2).float().split(method.evaluation_batch))
        monkeypatch.setattr(method.sitar, "logits", lambda x, rows=rows: next(rows))
        found[name] = method._above_chance(method.sitar.logits, DATA.train)
    assert found == pytest.approx({"right": 1, "one class": 0, "wrong": -1})


def test_what_a_candidate_has_learned_is_a_share_of_what_erm_has(monkeypatch: pytest.MonkeyPatch) -> None:
    method = looking()
    monkeypatch.setattr(method, "_above_chance", lambda of, train: 0.8 if of is method.network else 0.2)
    method.choose(DATA.train)
    assert method.learned.tolist() == pytest.approx([0.25, 0.25])
    monkeypatch.setattr(method, "_above_chance", lambda of, train: 0.0)
    method.choose(DATA.train)
    assert method.learned.tolist() == [0, 0]


def test_the_gate_is_read_on_the_latent_of_the_control() -> None:
    """The same numbers come from the probe itself, for the latent of the control."""
    method = looking()
    method.choose(DATA.train)
    mu, log_var = (
        part.double().detach() for part in method.control.vae.encode(to_float(torch.as_tensor(DATA.train.x[:])))
    )
    covariance = torch.cov(mu.T, correction=0) + torch.diag(log_var.exp().mean(0))
    moments = method.control.label_moments(mu, DATA.train.y)
    suspects = method.control.noise.suspects(moments, covariance.float()).double()
    wanted = read_gate(mu, DATA.train.y, 2, suspects, covariance)
    whole, alone, rest = (float(value) for value in (wanted.whole, wanted.suspects, wanted.rest))
    assert method.readings[0].tolist() == pytest.approx([whole, alone, rest], abs=1e-5)
    assert whole > 0


def test_the_gate_of_the_bank_is_that_of_a_user_who_names_its_properties() -> None:
    bank = data_for(CONFIG, DATA).nuisances
    assert bank is not None
    assert not bank.names_told
    names = [nuisance.name for nuisance in bank.about]
    assert {"mean_colour", "brightness", "contrast", "blur"} <= set(names) < set(BANK)  # all images have one size
    told = settings("sitar", noise="swap", nuisances=names)
    by_name, method = fresh(told, DATA).eval(), fresh(CONFIG, DATA).eval()
    assert isinstance(method, Auto)
    assert isinstance(by_name, SITAR)
    by_name.load_state_dict(method.control.state_dict())
    by_name.observe(DATA.train, data_for(told, DATA).nuisances)
    wanted = by_name.reading(DATA.train)
    list(method.phases())  # to the last one, in which the control looks
    method.observe(DATA.train, bank)
    method.choose(DATA.train)
    assert method.readings[1, [0, 2]].tolist() == pytest.approx([float(wanted.whole), float(wanted.rest)])
    assert not torch.equal(method.readings[0], method.readings[1])


@pytest.mark.parametrize("told", [True, False])
def test_the_gate_of_the_bank_asks_the_properties_and_not_the_latent(told: bool) -> None:
    """The latent is the same in both cases. The properties tell the label in one of them."""
    method = looking()
    y = DATA.train.y
    values = torch.randn((len(y), 3), generator=torch.Generator().manual_seed(0)).to(method.control.table)
    if told:
        values[:, 1] = 10 * y
    method.control.table = values
    method.choose(DATA.train)
    _, properties, _ = method.readings[1].tolist()
    assert properties == pytest.approx(float(usable_information(values.double(), y, 2)), abs=1e-6)
    assert properties > 0.9 if told else properties < 0.1
    method.readings[1, 0] = 0.9  # of a control that has learned
    assert method._is_open("bank") == told


def test_only_images_have_a_bank() -> None:
    moments = (torch.zeros(8), torch.ones(8))
    features = Task((8,), 2, 100, (50, 50), moments)
    assert isinstance(CONFIG.method, AutoConfig)
    method = Auto(CONFIG.method, CONFIG.model, features)
    assert method.bank is None
    assert "bank" not in [phase.name for phase in method.phases()]
    assert "no pixels" in method.facts()["auto"]["words"]


@pytest.mark.parametrize("options", [{"nuisances": ["color"]}, {"bank": False}])
def test_there_is_no_bank_where_a_user_says_what_to_ignore_or_wants_none(options: dict[str, Any]) -> None:
    config = settings("sitar_auto", **options)
    method = fresh(config, DATA)
    assert isinstance(method, Auto)
    assert method.bank is None
    assert "bank" not in method.facts()["auto"]["words"]
    nuisances = data_for(config, DATA).nuisances
    assert (nuisances is not None) == ("nuisances" in options)


def test_the_epoch_is_that_of_the_chosen_candidate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """ERM keeps the epoch that is best on val, and a candidate with noise its last one."""
    config = settings(
        "sitar_auto", noise="swap", train={**TINY_TRAIN, "epochs": 6, "learning_rate": 0.01, "selection": "val_average"}
    )
    folder = run(config, tmp_path / "erm")
    plain: Any = folder.result()
    erm = [line["val"]["average"] for line in folder.metrics() if line["phase"] == "erm"]
    assert (plain["auto"]["chosen"], plain["selection"]) == ("erm", "val_average")
    assert plain["selected_epoch"] == 1 + int(np.argmax(erm)) < 6  # else this test says nothing
    assert not torch.equal(weights(folder)["control.projection"], torch.eye(4)), "the control has not looked at the end"
    monkeypatch.setattr(Auto, "_is_open", lambda self, name: True)
    monkeypatch.setattr(Auto, "_has_learned", lambda self, name: True)
    opened: Any = run(config, tmp_path / "bank").result()
    assert opened["auto"]["chosen"] == "bank"
    assert (opened["selected_epoch"], opened["selection"]) == (6, "last")
    assert opened["auto"]["epochs"]["erm"] == plain["selected_epoch"]


def test_classes_stay_where_the_noise_moves_nothing_that_they_follow() -> None:
    method = fresh(CONFIG, DATA).eval()
    assert isinstance(method, Auto)
    assert method.sitar.steadiness(DATA.train, 0.0) == 1
    mu = method.sitar.vae.encode(to_float(torch.as_tensor(DATA.train.x[:])))[0].detach()
    c = method.sitar.label_moments(mu, DATA.train.y).shared[0]
    across = torch.linalg.svd(c.unsqueeze(0))[2][-1]  # at right angles to what swap noise moves
    for direction, steady in ((c / c.norm(), False), (across, True)):
        weight = torch.stack([direction, -direction])
        rule = torch.nn.Linear(len(c), 2)
        rule.load_state_dict({"weight": weight, "bias": -weight @ mu.mean(0)})
        method.sitar.classifier = rule  # type: ignore[assignment]
        share = method.sitar.steadiness(DATA.train, 1.0)
        assert (share > 0.99) == steady, share


def test_candidates_are_trained_without_each_other(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """ERM within auto is ERM to the bit where it is chosen, and the log says which candidate it was and why."""
    caplog.set_level(logging.INFO, "sitar")
    config = settings("sitar_auto", train={**TINY_TRAIN, "selection": "val_average"})
    result: Any = run(config, tmp_path / "auto").result()
    assert result["auto"]["words"] in caplog.text
    assert result["auto"]["chosen"] == "erm"  # on so few steps the latent tells nothing twice
    phases = [line["phase"] for line in run(config, tmp_path / "auto", resume=True).metrics()]
    assert list(dict.fromkeys(phases)) == ["erm", "control", "sitar", "bank"]
    alone = run(settings("erm", train=config.train.model_dump()), tmp_path / "erm").result()
    assert alone["splits"]["id_test"]["average"] == result["splits"]["id_test"]["average"]


@pytest.mark.parametrize(
    ("options", "named"),
    [({"noise": "isotropic"}, "noise"), ({"alpha": 0}, "alpha"), ({"gate": True}, "gate"), ({"beta": -1}, "beta")],
)
def test_settings_without_meaning_are_refused(options: dict[str, Any], named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        settings("sitar_auto", **options)


def test_a_nuisance_that_is_named_twice_is_refused() -> None:
    with pytest.raises(ConfigError, match="twice"):
        settings("sitar_auto", nuisances=["color", "color"])
