"""Try the rules of `sitar ask` and `sitar choose` on generated candidates. No dataset is used.

We know of generated candidates how accurate they are. Two candidates are right independently, on images of two classes.
A person who knows the truth is asked as `sitar ask` asks.

- Twenty answers on disagreements choose a candidate: how often is it the better one?
- The questions stop as soon as the choice is settled: after how many answers, how often is the better one chosen, and
  how much accuracy does a wrong choice cost?
- Accuracies are estimated from 30 answers: how far is their mean from the truth, and how often does the interval hold
  the truth? The plain mean over the answers stands beside it.

    python reproduce/ask_rule.py    writes reproduce/records/ask_rule.json
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sitar.analysis.answers import DISAGREEMENT, Answer, Answers
from sitar.analysis.ask.choosing import FEWEST, decide
from sitar.analysis.ask.evidence import Evidence
from sitar.analysis.ask.next_image import Order
from sitar.analysis.ask.pool import Pool
from sitar.files import write_atomic

RECORD = Path(__file__).parent / "records" / "ask_rule.json"
IMAGES, SESSIONS, MOST_ANSWERS = 1000, 400, 100
ESTIMATES, ESTIMATE = 2000, 30  # sessions, and answers of each
PAIRS = ((0.8, 0.6), (0.7, 0.6), (0.7, 0.65))

Truth = NDArray[np.int64]


def generated(accuracies: Sequence[float], random: np.random.Generator) -> tuple[Pool, Truth]:
    """Generate the truth of all images, and what candidates of these accuracies predict."""
    truth = random.integers(0, 2, IMAGES)
    predictions = np.stack([np.where(random.random(IMAGES) < accuracy, truth, 1 - truth) for accuracy in accuracies])
    names = [str(image) for image in range(IMAGES)]
    runs = [str(accuracy) for accuracy in accuracies]
    return Pool(runs, runs, ("0", "1"), names, predictions), truth


def answered(pool: Pool, truth: Truth, n: int, seed: int) -> list[Answer]:
    """Ask so many questions, and answer them with the truth."""
    order, asked, lines = Order(pool.disagree, seed), [], []
    for number in range(n):
        question = order.next(asked, number, most=1)[0]
        asked.append(question.image)
        answer = pool.classes[truth[question.image]]
        lines.append(Answer(pool.names[question.image], answer, question.why_asked, question.probability))
    return lines


def play(accuracies: Sequence[float], seed: int, n: int) -> tuple[Pool, NDArray[np.float64], list[Answer]]:
    """Generate candidates, and ask so many questions. Return the real accuracies, too."""
    random = np.random.default_rng([seed, *(int(1000 * accuracy) for accuracy in accuracies)])
    pool, truth = generated(accuracies, random)
    return pool, (pool.predictions == truth).mean(1), answered(pool, truth, n, seed)


def choice(accuracies: Sequence[float], seed: int) -> dict[str, Any]:
    """Choose after 20 answers on disagreements, and when the rule says stop, at the latest after MOST_ANSWERS."""
    pool, real, lines = play(accuracies, seed, MOST_ANSWERS)
    disputed = [line for line in lines if line.why_asked == DISAGREEMENT][:20]
    evidence = Evidence.read(pool, Answers(disputed))
    twenty = decide(evidence, evidence.draws()).leader
    for n in range(FEWEST, MOST_ANSWERS + 1):
        evidence = Evidence.read(pool, Answers(lines[:n]))
        verdict = decide(evidence, evidence.draws(n=1000))
        if verdict.is_sure or verdict.is_close:
            break
    return {
        "right after 20 on disagreements": real[twenty] == real.max(),
        "settled": verdict.is_sure or verdict.is_close,
        "answers": n,
        "right": real[verdict.leader] == real.max(),
        "accuracy lost": real.max() - real[verdict.leader],
    }


def estimate(accuracies: Sequence[float], seed: int) -> dict[str, Any]:
    """Estimate the accuracy of both candidates, by the rule and by the plain mean over the answers."""
    pool, real, lines = play(accuracies, seed, ESTIMATE)
    evidence = Evidence.read(pool, Answers(lines))
    low, high = np.quantile(evidence.draws(), [0.025, 0.975], axis=0)
    return {
        "error": evidence.accuracies() - real,
        "inside the interval": (low <= real) & (real <= high),
        "error of the plain mean": (pool.predictions[:, evidence.place] == evidence.truth).mean(1) - real,
    }


def mean(rows: Sequence[dict[str, Any]]) -> dict[str, float]:
    return {key: round(float(np.mean([row[key] for row in rows])), 4) for key in rows[0]}


def summary(accuracies: Sequence[float]) -> dict[str, Any]:
    """Play all sessions of one pair of candidates."""
    return {
        "better": accuracies[0], "other": accuracies[1], "first session": mean([choice(accuracies, 0)]),
        "choice": mean([choice(accuracies, seed) for seed in range(SESSIONS)]),
        "estimate": mean([estimate(accuracies, seed) for seed in range(ESTIMATES)]),
    }  # fmt: skip


def main() -> None:
    record = {
        "images": IMAGES,
        "sessions": SESSIONS,
        "estimates": ESTIMATES,
        "pairs": [summary(pair) for pair in PAIRS],
    }
    write_atomic(RECORD, (json.dumps(record, indent=2) + "\n").encode())
    print(json.dumps(record, indent=2))


if __name__ == "__main__":
    main()
