"""Properties of images, against implementations from outside."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from PIL import Image
from scipy.ndimage import laplace
from sklearn.decomposition import PCA

from sitar.data import image_properties as properties
from sitar.data.image_properties import feature_properties, image_properties

RANDOM = np.random.default_rng(0)
IMAGES = RANDOM.integers(0, 256, (30, 3, 24, 32), dtype=np.uint8)
FOUND = image_properties(torch.from_numpy(IMAGES))


def test_light_and_colour() -> None:
    for i, image in enumerate(IMAGES):
        picture = Image.fromarray(image.transpose(1, 2, 0))
        gray = np.asarray(picture.convert("L")) / 255
        assert FOUND["brightness"][i, 0] == pytest.approx(gray.mean(), abs=0.003)
        assert FOUND["contrast"][i, 0] == pytest.approx(gray.std(), abs=0.003)
        assert FOUND["saturation"][i, 0] == pytest.approx(
            np.asarray(picture.convert("HSV"))[..., 1].mean() / 255, abs=0.003
        )
        assert FOUND["mean colour"][i] == pytest.approx(image.mean((1, 2)) / 255, abs=1e-5)


def test_sharpness_is_the_variance_of_the_laplacian() -> None:
    gray = (IMAGES / 255 * np.array([0.299, 0.587, 0.114])[:, None, None]).sum(1)
    expected = [np.log(laplace(image)[1:-1, 1:-1].var(ddof=1)) for image in gray]
    assert FOUND["sharpness"][:, 0] == pytest.approx(np.array(expected), abs=1e-4)


def test_corners_and_edges_are_where_their_names_say() -> None:
    image = np.zeros((1, 3, 24, 32), np.uint8)
    image[0, 0, -3:, :4] = 255  # a red corner
    found = image_properties(torch.from_numpy(np.repeat(image, 3, 0)))
    assert found["bottom left corner"][0] == pytest.approx([1, 0, 0, 0, 1])
    assert all(found[f"{place} corner"].max() == 0 for place in ("top left", "top right", "bottom right"))
    assert found["bottom edge"][0, 0] == pytest.approx(4 / 32)
    assert found["left edge"][0, 0] == pytest.approx(3 / 24)
    assert found["top edge"].max() == found["right edge"].max() == 0
    border = 2 * 3 * 32 + 2 * 4 * 18
    assert found["border"][0, 0] == pytest.approx(12 / border)


def test_the_background_is_the_most_frequent_colour_of_the_border() -> None:
    image = np.full((2, 3, 16, 16), 200, np.uint8)
    image[:, :, 4:12, 4:12] = 10  # the object
    image[:, :, :5, :5] = 90  # something in a corner
    found = image_properties(torch.from_numpy(image))
    assert found["background"] == pytest.approx(np.full((2, 3), 200 / 255), abs=1e-5)


def test_components_are_those_of_scikit_learn(monkeypatch: pytest.MonkeyPatch) -> None:
    x = RANDOM.normal(size=(200, 12)) @ RANDOM.normal(size=(12, 12))
    found = feature_properties(torch.from_numpy(x))
    expected = PCA(10).fit_transform((x - x.mean(0)) / x.std(0))
    for i in range(10):
        ours = found[f"principal component {i + 1}"][:, 0]
        assert np.abs(ours) == pytest.approx(np.abs(expected[:, i]), abs=1e-8)
    assert found["feature 3"][:, 0] == pytest.approx(x[:, 3])
    monkeypatch.setattr(properties, "MOST_FEATURES", 11)
    assert not any(name.startswith("feature") for name in feature_properties(torch.from_numpy(x)))


@pytest.mark.parametrize("shape", [(1, 28, 28), (2, 9, 5), (5, 16, 16), (3, 2, 2), (1, 1, 1)])
def test_images_of_every_shape_have_finite_properties(shape: tuple[int, int, int]) -> None:
    images = torch.from_numpy(RANDOM.integers(0, 256, (7, *shape), dtype=np.uint8))
    for name, values in image_properties(images).items():
        assert len(values) == 7, name
        assert np.isfinite(values).all(), name


def test_batches_do_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(properties, "AT_ONCE", 7)
    again = image_properties(torch.from_numpy(IMAGES))
    assert all(again[name] == pytest.approx(values, abs=1e-5) for name, values in FOUND.items())
