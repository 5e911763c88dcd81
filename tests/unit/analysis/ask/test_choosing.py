"""The better candidate is chosen, and it is said when the questions can stop."""

from __future__ import annotations

import json

import numpy as np
import pytest

from helpers.asking import answered, guesses, pool_of
from helpers.scripts import ROOT, script
from sitar.analysis.answers import Answer, Answers
from sitar.analysis.ask.choosing import CLOSE, FEWEST, FORECAST_DRAWS, SURE, choose, judge
from sitar.analysis.ask.evidence import Evidence
from sitar.errors import ConfigError, DataError


def test_twenty_answers_on_disagreements_choose_the_better_candidate() -> None:
    """Accuracies .8 and .6: right in more than 95 of 100 sessions."""
    random = np.random.default_rng(0)
    right = 0
    for seed in range(200):
        truth = random.integers(0, 2, 500)
        pool = pool_of(guesses(random, truth, 0.6, 0.8))
        wanted = [line for line in answered(pool, truth, 60, seed).lines if line.why_asked == "disagreement"][:20]
        assert len(wanted) == 20
        right += choose(pool, Answers(wanted)).chosen.run == "runs/1"
    assert right > 0.95 * 200


def test_what_is_settled_is_right_as_often_as_it_says() -> None:
    random = np.random.default_rng(1)
    right, settled = 0, 0
    for seed in range(120):
        truth = random.integers(0, 2, 500)
        accuracies = random.uniform(0.5, 0.9, 2)
        pool = pool_of(guesses(random, truth, *accuracies))
        choice = choose(pool, answered(pool, truth, 30, seed))
        if choice.settled and choice.chosen.best >= SURE:
            settled += 1
            right += int(choice.chosen.run[-1]) == int((pool.predictions == truth).mean(1).argmax())
    assert settled > 40
    assert right >= 0.95 * settled


def test_as_many_more_answers_as_it_says_settle_it() -> None:
    """The forecast is for answers that come as expected: it need not hold in a session, but it does on average."""
    random = np.random.default_rng(2)
    truth = random.integers(0, 2, 2000)
    pool = pool_of(guesses(random, truth, 0.75, 0.6))
    needed = []
    for seed in range(40):
        choice = choose(pool, answered(pool, truth, 14, seed))
        if not choice.settled and choice.more_answers is not None and choice.more_answers <= 30:
            after = choose(pool, answered(pool, truth, 14 + choice.more_answers, seed))
            needed.append(after.chosen.best)
    assert len(needed) > 10
    assert np.mean(needed) > 0.8


def test_the_forecast_ends_just_where_it_is_settled() -> None:
    pool = pool_of([[0] * 400, [1] * 400])
    lines = [Answer(pool.names[i], "cat" if i < 5 else "dog") for i in range(7)]
    evidence = Evidence.read(pool, Answers(lines))
    more = judge(evidence).more_answers
    assert more is not None

    def best(later: int) -> float:
        draws = evidence.draws(later, FORECAST_DRAWS)
        return float((draws[:, 0] > draws[:, 1]).mean())

    assert best(more) >= SURE
    assert best(more - 1) < SURE


def test_words_say_who_is_ahead_and_what_would_settle_it() -> None:
    pool = pool_of([[0] * 400, [1] * 400])

    def words(*answers: str) -> str:
        return judge(Evidence.read(pool, Answers([Answer(pool.names[i], a) for i, a in enumerate(answers)]))).words

    assert words() == "0 answers of at least 5. The candidates disagree on 100 % of the images."
    assert words("cat") == "1 answer of at least 5. The candidates disagree on 100 % of the images."
    assert words(*["cat"] * 8).startswith("candidate A is ahead, but all answers so far are one class")
    assert "candidate A is ahead, " in words(*["cat"] * 4, "dog")
    assert "more answers would settle it." in words(*["cat"] * 4, "dog")
    assert "this is settled, and you can stop. Its accuracy is 9" in words(*["cat"] * 14, "dog")
    assert "would hardly settle it" in words(*["cat", "dog"] * 60)
    assert "candidate A is ahead, over 99 %: this is settled" in words(*["cat"] * 60, "dog")


@pytest.mark.parametrize(
    ("images", "skipped", "said"),
    [
        (2000, 0, ". 500 more answers would hardly settle it: the best two are about equal."),
        (160, 0, ". Answers about all images would hardly settle it: the best two are about equal."),
        (160, 120, ", and no image is left that could settle it: the best two are about equal."),
    ],
)
def test_more_answers_than_there_are_images_are_not_asked_for(images: int, skipped: int, said: str) -> None:
    pool = pool_of([[0] * images, [1] * images])
    given = ["cat", "dog"] * 20 + [""] * skipped
    lines = [Answer(pool.names[i], answer) for i, answer in enumerate(given)]
    choice = choose(pool, Answers(lines))
    assert choice.words.endswith(said)
    assert choice.more_answers is None


def test_candidates_that_hardly_differ_are_equally_good() -> None:
    first = np.zeros(2000, int)
    second = first.copy()
    second[:8] = 1
    pool = pool_of([first, second])
    lines = [Answer(pool.names[i], "dog" if i % 2 else "cat") for i in [0, 1, 2, 3, *range(100, 110)]]
    choice = choose(pool, Answers(lines))
    assert choice.settled
    assert choice.chosen.best < SURE
    assert f"by less than {100 * CLOSE:.0f} %: either will do" in choice.words


def test_one_candidate_leaves_nothing_to_choose() -> None:
    pool = pool_of([[0, 1] * 10])
    with pytest.raises(ConfigError, match="One candidate leaves nothing to choose"):
        choose(pool, Answers())
    assert judge(Evidence.read(pool, Answers())).words.startswith("One candidate leaves nothing to choose")
    answers = answered(pool, np.arange(20) % 2, 10)
    assert "It is 100 % (" in judge(Evidence.read(pool, answers)).words


def test_candidates_that_agree_leave_nothing_to_choose() -> None:
    pool = pool_of([[0, 1] * 10] * 2)
    choice = choose(pool, answered(pool, np.arange(20) % 2, 6))
    assert choice.words.startswith("All candidates agree on every image")
    assert "The accuracy of all of them is 100 % (" in choice.words
    assert choice.disagreement == 0


@pytest.mark.parametrize("n", range(FEWEST))
def test_fewer_than_five_answers_do_not_choose(n: int) -> None:
    pool = pool_of([[0] * 10, [1] * 10])
    with pytest.raises(DataError, match=f"{n} answers? cannot choose: at least 5"):
        choose(pool, answered(pool, np.zeros(10, int), n))


def test_answers_of_one_class_settle_nothing() -> None:
    """A candidate that always says this class would win whatever it knows."""
    pool = pool_of([[0] * 50, [1] * 50])
    choice = choose(pool, answered(pool, np.zeros(50, int), 30))
    assert not choice.settled
    assert choice.chosen.best > SURE
    assert any("All answers are 'cat'" in note for note in choice.notes)


def test_the_record_is_of_the_rule_as_it_is() -> None:
    """docs/ask.md shows what reproduce/ask_rule.py found: its first sessions end today as they did."""
    rule = script("reproduce/ask_rule.py")
    record = json.loads((ROOT / "reproduce" / "records" / "ask_rule.json").read_text(encoding="utf-8"))
    assert [(pair["better"], pair["other"]) for pair in record["pairs"]] == list(rule.PAIRS)
    for pair in record["pairs"]:
        assert rule.mean([rule.choice((pair["better"], pair["other"]), 0)]) == pair["first session"]
