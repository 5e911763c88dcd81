"""Say what a report does not show, and what makes it: the parts of explanations that runs lack."""

from __future__ import annotations

from typing import Any

from sitar.findings import PARTS
from sitar.reporting.comparison import ComparedRun, Comparison
from sitar.reporting.html.axes import reference_folder, reference_vaes
from sitar.reporting.html.sentences import listed
from sitar.run_folder import RunFolder, explain_command


def missing_parts(comparison: Comparison) -> list[dict[str, Any]]:
    """Return what is not shown, of which runs, and the command that makes it, or the reason why nothing does."""
    lost: dict[tuple[str, ...], list[ComparedRun]] = {}
    reasons: dict[tuple[str, str], list[str]] = {}
    for run in comparison.runs:
        given = (run.explanation or {}).get("reasons") or {}
        gone = [name for name in PARTS if name not in given and not _is_there(run, name)]
        if gone:
            lost.setdefault(tuple(gone), []).append(run)
        for name in PARTS:
            if name in given:
                reasons.setdefault((name, given[name]), []).append(run.label)
    notices: list[dict[str, Any]] = [
        {
            "what": listed(PARTS[name].title for name in names),
            "runs": [run.label for run in runs],
            "command": _explain(comparison, runs),
        }
        for names, runs in lost.items()
    ]
    notices += [
        {"what": PARTS[name].title, "runs": runs, "reason": comparison.shown(str(reason))}
        for (name, reason), runs in reasons.items()
    ]
    if len(reference_vaes(comparison)) > 1:
        labels = [run.label for run in comparison.runs if run.part("shared_axes")]
        what = {"what": "axes in use side by side, as each was measured on other axes", "runs": labels}
        notices.append(what | _explain_on_one_vae(comparison))
    return notices


def _is_there(run: ComparedRun, name: str) -> bool:
    return bool(run.part(name)) and (not PARTS[name].has_arrays or bool(run.part_arrays(name)))


def _explain(comparison: Comparison, runs: list[ComparedRun]) -> str:
    """Return the command that explains these runs on the axes on which the others were measured.

    Where nobody was measured yet, or that VAE is gone, it explains all runs at once.
    """
    reference = reference_folder(comparison)
    return _command(comparison, comparison.runs if reference is None else runs, reference)


def _command(comparison: Comparison, runs: list[ComparedRun], axes: RunFolder | None) -> str:
    """Return the command that explains these runs, with folders as they may be shown."""
    shown = comparison.shown_folder
    return explain_command(*(shown(run.folder) for run in runs), axes=None if axes is None else shown(axes))


def _explain_on_one_vae(comparison: Comparison) -> dict[str, str]:
    """Return the command that measures all runs on the axes of one that has a decoder, or of a VAE that one knows."""
    with_decoder = (run.folder for run in comparison.runs if run.part("traversals"))
    reference = next(with_decoder, None) or reference_folder(comparison)
    if reference is None:
        return {"reason": "The VAEs whose axes they were are gone; `sitar explain` with --axes names another."}
    return {"command": _command(comparison, comparison.runs, reference)}
