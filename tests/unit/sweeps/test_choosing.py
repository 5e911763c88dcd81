"""Which rules may choose a setting: those that read `val`, and groups only where a user says so."""

from __future__ import annotations

import pytest

from sitar.errors import ConfigError
from sitar.presets import load_config
from sitar.sweeps.choosing import Rule, check_epochs, free_rules, make_rule


def test_the_default_follows_the_runs_own_epochs() -> None:
    for selection, rule in (("last", "val_average"), ("val_class_balanced", "val_class_balanced")):
        assert make_rule(None, load_config("color_mnist/erm", [f"train.selection={selection}"])).name == rule
    assert make_rule(None, load_config("color_mnist/erm", ["train.selection=val_worst_group"])).name == "val_average"


def test_where_classes_are_weighted_the_default_weights_them_too() -> None:
    assert make_rule(None, load_config("table/erm", ["data.root=x"])).name == "val_class_balanced"
    unweighted = load_config("table/erm", ["data.root=x", "method.class_weight=null"])
    assert make_rule(None, unweighted).name == "val_average"


def test_group_free_rules_are_those_that_need_no_groups() -> None:
    assert {"val_average", "val_class_balanced", "val_auroc", "val_calibration_error"} <= set(free_rules())
    assert not {"val_worst_group", "val_core_auc", "val_adjusted_average"} & set(free_rules())


@pytest.mark.parametrize("name", ["val_worst_group", "val_core_auc"])
def test_a_rule_that_reads_groups_is_marked(name: str) -> None:
    assert make_rule(name, load_config("color_mnist/erm")) == Rule(name.removeprefix("val_"), reads_groups=True)
    assert not make_rule("val_auroc", load_config("color_mnist/erm")).reads_groups


@pytest.mark.parametrize(
    ("select", "says"),
    [
        ("test_average", "reads test, and a setting that is chosen there cannot be judged there"),
        ("ood_test_worst_group", "reads ood_test"),
        ("id_test_average", "reads id_test"),
        ("test_average_val_ood", "reads test"),
        ("val_ood", "Unknown rule"),
        ("val_ood_averge", "Unknown rule 'val_ood_averge'.* So must those that read val_ood"),
        ("val_ood_shortcut_auc", "says nothing about the label"),
        ("train_average", "reads train"),
        ("test", "reads test"),
        ("val_shortcut_auc", "says nothing about the label"),
        ("val_averge", "Did you mean 'val_average'"),
        ("average", "Did you mean 'val_average'"),
        ("last", "Unknown rule"),
    ],
)
def test_other_rules_are_refused_with_the_reason(select: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        make_rule(select, load_config("color_mnist/erm"))


@pytest.mark.parametrize(("name", "reads_groups"), [("average", False), ("worst_group", True)])
def test_val_ood_chooses_where_a_user_says_so(name: str, reads_groups: bool) -> None:
    rule = make_rule(f"val_ood_{name}", load_config("color_mnist/erm"))
    assert rule == Rule(name, reads_groups, "val_ood")
    assert rule.name == f"val_ood_{name}"
    config = load_config("color_mnist/erm", ["train.selection=val_worst_group"])
    if not reads_groups:
        with pytest.raises(ConfigError, match=r"--set train.selection=val_average, or"):
            check_epochs(rule, [config])


def test_epochs_that_are_chosen_by_groups_are_refused_unless_the_sweep_reads_them() -> None:
    config = load_config("color_mnist/erm", ["train.selection=val_worst_group"])
    with pytest.raises(ConfigError, match=r"--set train.selection=val_average, or .* --select val_worst_group"):
        check_epochs(Rule("average"), [load_config("color_mnist/erm"), config])
    check_epochs(Rule("core_auc", reads_groups=True), [config])
