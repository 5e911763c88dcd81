"""Estimators give every method the interface of scikit-learn: `fit`, `predict` and what follows from them."""

from sitar.estimator.classifiers import ShortcutRobustClassifier, SitarClassifier

__all__ = ["ShortcutRobustClassifier", "SitarClassifier"]
