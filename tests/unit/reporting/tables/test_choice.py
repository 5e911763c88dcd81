"""The table of `sitar choose` marks one candidate."""

from __future__ import annotations

from sitar.reporting.tables.choice import choice_table


def test_of_two_candidates_of_one_run_only_the_chosen_one_is_marked() -> None:
    """Two heads of one run share its folder."""
    standings = [
        {"label": f"head {i}", "run": "runs/divdis", "accuracy": accuracy, "interval": [0.5, 0.9], "best": best}
        for i, (accuracy, best) in enumerate([(0.7, 0.2), (0.8, 0.8)])
    ]
    choice = {"standings": standings, "chosen": dict(standings[1]), "answers": 20, "images": 100, "disagreement": 0.4}
    assert [row[0] for row in choice_table(choice).rows] == ["head 1 *", "head 0"]
