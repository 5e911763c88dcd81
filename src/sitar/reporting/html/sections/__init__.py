"""Here are the sections of a report, in the order of the page, with the words that lead to them.

A section is a module of the section's name with a function `make(comparison, sharing)`, and a template of the same name
in `templates/sections`. The function returns what the template needs, as plain values, or None where the comparison has
nothing to show. `sharing` is how many comparisons share the page.
"""

SECTIONS = {
    "summary": "Summary",
    "accuracy": "Accuracy",
    "groups": "Groups",
    "audit": "Audit",
    "traversals": "Traversals",
    "sensitivity": "Axes in use",
    "mistakes": "Mistakes",
    "gradcam": "Grad-CAM",
    "training": "Training",
    "scores": "v over epochs",
    "confusion": "Confusion",
    "settings": "Settings",
}
