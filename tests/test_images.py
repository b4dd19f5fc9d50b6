"""Posteriors of images: against the densities of the noise."""

import numpy as np
import pytest
from scipy import stats

from sklsb import Ising, Potts, exact


def image(shape, seed=0, scale=80.0):
    return np.random.default_rng(seed).normal(120.0, scale, size=shape)


def log_density(y, means, sd):
    """Of each label at each pixel, up to a constant by pixel."""
    means = np.asarray(means, dtype=float)
    parts = [stats.norm.logpdf(y, m, sd).reshape(*y.shape[:2], -1).sum(-1) for m in means]
    found = np.stack(parts, axis=-1)
    return found - found[..., :1]


@pytest.mark.parametrize("means", [(0, 128, 255), [[0, 9, 0], [255, 0, 40], [7, 7, 7], [0, 1, 2]]])
def test_potts(means):
    y = image((3, 4) if np.ndim(means) == 1 else (3, 4, 3))
    target = Potts.from_image(y, means, noise_sd=60.0, coupling=0.7)
    field = target.field.reshape(3, 4, -1)
    np.testing.assert_allclose(field - field[..., :1], log_density(y, means, 60.0), atol=1e-10)
    other = Potts.lattice(field, 0.7, periodic=False)
    assert (target.couplings != other.couplings).nnz == 0
    assert target.dims == ("row", "col")


@pytest.mark.parametrize("levels", [(0, 255), (200.0, 20.0), [[0, 9, 0], [255, 0, 40]]])
def test_ising_of_any_range(levels):
    y = image((2, 5) if np.ndim(levels) == 1 else (2, 5, 3))
    target = Ising.from_image(y, levels=levels, noise_sd=45.0, coupling=0.3, periodic=True)
    wanted = log_density(y, levels, 45.0)[..., 1] / 2.0  # white against black is 2 h
    np.testing.assert_allclose(target.field.reshape(2, 5), wanted, atol=1e-10)
    other = Ising.lattice(np.zeros((2, 5)), 0.3)
    assert (target.couplings != other.couplings).nnz == 0


def test_levels_about_zero_are_the_mean():
    y = image((3, 3)) - 120.0
    one = Ising.from_image(y, mean=2.0, noise_sd=5.0)
    other = Ising.from_image(y, levels=(-2.0, 2.0), noise_sd=5.0)
    np.testing.assert_allclose(one.field, other.field, rtol=1e-12)


def test_missing_pixels_say_nothing():
    y = image((3, 4))
    missing = np.zeros((3, 4), dtype=bool)
    missing[1, 2] = missing[0, 0] = True
    holes = np.where(missing, np.nan, y)
    for target, whole in (
        (
            Potts.from_image(holes, (0, 90, 200), 50.0, 1.0, missing=missing),
            Potts.from_image(y, (0, 90, 200), 50.0, 1.0),
        ),
        (
            Ising.from_image(holes, levels=(0, 255), noise_sd=50.0, missing=missing),
            Ising.from_image(y, levels=(0, 255), noise_sd=50.0),
        ),
        (
            Ising.from_image(holes - 120.0, 50.0, 50.0, missing=missing),
            Ising.from_image(y - 120.0, 50.0, 50.0),
        ),
    ):
        found, wanted = target.field.reshape(12, -1), whole.field.reshape(12, -1)
        assert (found[missing.ravel()] == 0.0).all()
        np.testing.assert_array_equal(found[~missing.ravel()], wanted[~missing.ravel()])


def test_labels_and_their_probabilities_in_one_call_each():
    target = Potts.from_image(image((3, 4)), (0, 128, 255), 60.0, coupling=0.7)
    p = exact.marginals(target)["p"]
    labels, sure = p.argmax("state"), p.max("state")
    assert labels.dims == sure.dims == ("row", "col")
    # By enumeration.
    states, weight = exact.states(Potts.from_image(image((2, 3)), (0, 255), 60.0, 0.7)), None
    small = Potts.from_image(image((2, 3)), (0, 255), 60.0, 0.7)
    weight = exact.probabilities(small)
    up = weight @ (states == 1).reshape(len(states), -1)
    p = exact.marginals(small)["p"]
    np.testing.assert_array_equal(p.argmax("state").values.ravel(), up > 0.5)
    np.testing.assert_allclose(p.max("state").values.ravel(), np.maximum(up, 1 - up), rtol=1e-10)


Y = np.zeros((2, 3))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: Potts.from_image(Y, (1,), 1.0, 1.0),
            r"means has shape \(1,\).*needs \(k,\), with",
        ),
        (lambda: Potts.from_image(Y, np.eye(3), 1.0, 1.0), r"means has shape \(3, 3\); an image"),
        (
            lambda: Potts.from_image(np.zeros((2, 3, 3)), (0, 1), 1.0, 1.0),
            r"image of shape \(2, 3, 3\) needs \(k, 3\)",
        ),
        (lambda: Potts.from_image([1.0], (0, 1), 1.0, 1.0), r"image has shape \(1,\); it must"),
        (lambda: Potts.from_image(Y, (0, np.nan), 1.0, 1.0), r"means\[1\] is nan; it must be fin"),
        (
            lambda: Potts.from_image(Y + np.nan, (0, 1), 1.0, 1.0),
            r"image\[0, 0\] is nan; .*missing",
        ),
        (lambda: Potts.from_image(Y, (0, 1), 0.0, 1.0), "noise_sd is 0.0; it must be a positive"),
        (lambda: Potts.from_image(Y, (0, 1), 1e-200, 1.0), "not finite for noise_sd 1e-200"),
        (lambda: Potts.from_image(Y, (0, 1), 1.0, 1.0, missing=Y), "missing has dtype float64"),
        (lambda: Ising.from_image(Y, levels=(0, 1)), "noise_sd is None; with levels give noise_sd"),
        (lambda: Ising.from_image(Y, 2.0, 1.0, levels=(0, 1)), "mean is 2.0 .*no mean"),
        (lambda: Ising.from_image(Y, levels=(0, 1, 2), noise_sd=1), "levels has 3 entries.*Potts"),
        (lambda: Ising.from_image(np.zeros((2, 3, 3))), r"\(2, 3, 3\).*come with levels"),
    ],
)
def test_what_is_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_a_mask_is_what_is_missing():
    y, mask = image((3, 4)), np.random.default_rng(1).random((3, 4)) < 0.4
    masked = np.ma.array(y, mask=mask)
    options = {"noise_sd": 45.0, "coupling": 0.3}
    for make, more in (
        (Potts.from_image, {"means": (0, 128, 255)}),
        (Ising.from_image, {"levels": (0, 255)}),
    ):
        wanted = make(y, missing=mask, **options, **more)
        np.testing.assert_array_equal(make(masked, **options, **more).field, wanted.field)
        other = np.arange(12).reshape(3, 4) % 5 == 0
        both = make(y, missing=mask | other, **options, **more)
        found = make(masked, missing=other, **options, **more)
        np.testing.assert_array_equal(found.field, both.field)
        with pytest.raises(ValueError, match=r"missing has dtype bool and shape \(4,\)"):
            make(masked, missing=other[0], **options, **more)
    centred = y - 120.0
    wanted = Ising.from_image(centred, missing=mask).field
    np.testing.assert_array_equal(Ising.from_image(np.ma.array(centred, mask=mask)).field, wanted)
    assert (wanted.reshape(3, 4)[mask] == 0.0).all()
    colours = np.ma.array(image((2, 2, 3)), mask=np.zeros((2, 2, 3), bool))
    colours[0, 1, 2] = np.ma.masked
    found = Potts.from_image(colours, [[0, 0, 0], [255, 255, 255]], 45.0, 0.3).field
    assert (found.reshape(2, 2, 2)[0, 1] == 0.0).all()


def test_levels_that_say_nothing_and_no_pixels():
    with pytest.raises(ValueError, match=r"levels is \[3\.0, 3\.0\]; no two entries may be equal"):
        Ising.from_image(np.zeros((2, 2)), levels=(3, 3), noise_sd=1.0)
    with pytest.raises(ValueError, match=r"image has shape \(0, 3\): it has no pixels"):
        Potts.from_image(np.zeros((0, 3)), (1, 2), 1.0, 1.0)
