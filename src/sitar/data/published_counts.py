"""The counts of a data set are compared with those that are published, where there are any."""

from __future__ import annotations

from dataclasses import dataclass

from sitar.data.sample_table import SampleTable

Counts = dict[str, dict[str, int]]  # by split, and by group or in total
TOTAL = "total"
AND = " + "  # between splits that are published as one


@dataclass(frozen=True)
class CountComparison:
    """Counts samples of each group and in total, by split. A split that only `published` has is empty in `counts`."""

    counts: Counts
    published: Counts | None

    @property
    def agrees(self) -> bool | None:
        """Return whether our counts are the published ones, with no split missing. None: nothing is published."""
        if self.published is None:
            return None
        known = {part for name in self.published for part in (name, *name.split(AND))}
        if not self.counts.keys() <= known:
            return False
        return all(groups.items() <= self.counts[split].items() for split, groups in self.published.items())

    def totals(self) -> str:
        """List our total of every published split beside the published one."""
        published = {split: groups[TOTAL] for split, groups in (self.published or {}).items()}
        return ", ".join(f"{split} {self.counts[split][TOTAL]:,} (published {n:,})" for split, n in published.items())


def compare_counts(table: SampleTable, published: Counts | None) -> CountComparison:
    """Compare the counts of a table with published ones.

    `published` has the groups of each split, or only a total, and may name several splits as one: `train + val`.
    """
    counts = table.counts()
    none = dict.fromkeys(table.group_names or table.classes, 0)
    for name in (*table.before, *(published or ())):
        if name not in counts:
            parts = [counts.get(part, none) for part in name.split(AND)]
            counts[name] = {group: sum(part[group] for part in parts) for group in none}
    return CountComparison(_with_totals(counts), None if published is None else _with_totals(published))


def _with_totals(counts: Counts) -> Counts:
    return {split: {**groups, TOTAL: groups.get(TOTAL, sum(groups.values()))} for split, groups in counts.items()}
