"""Binary images: from scikit-learn, from OpenML (replaced here), from local files."""

import os
import pathlib
import urllib.error

import numpy as np
import pytest
import sklearn.datasets
from sklearn.utils import Bunch

from sklsb import RBM
from sklsb.datasets import load_digits, load_mnist

DATA = pathlib.Path(
    os.environ.get("SKLSB_DATA", pathlib.Path(__file__).parents[2] / "shared" / "data")
)


@pytest.fixture
def grey():
    """Twelve images of noise; levels on both sides of every threshold."""
    levels = np.random.default_rng(0).integers(256, size=(12, 28, 28)).astype(np.uint8)
    levels[0, 0, :4] = 0, 127, 128, 255
    return levels


@pytest.fixture
def binary(grey):
    return (grey.reshape(12, 784) >= 128).astype(np.int8)


def expect(found, data, target):
    assert found.data.dtype == np.int8
    np.testing.assert_array_equal(found.data, data)
    assert found.target.dtype == np.int64
    np.testing.assert_array_equal(found.target, target)
    assert found.shape == (28, 28)


# ----------------------------------------------------------------- digits


@pytest.mark.quick
def test_digits():
    images, target = sklearn.datasets.load_digits(return_X_y=True)
    digits = load_digits()
    assert digits.data.dtype == np.int8
    np.testing.assert_array_equal(digits.data, images > 7)
    np.testing.assert_array_equal(digits.target, target)
    assert "above 7" in digits.DESCR
    assert RBM(np.zeros((64, 2)), shape=digits.shape).shape == (8, 8)
    np.testing.assert_array_equal(load_digits(threshold=0.5).data, images >= 1)
    np.testing.assert_array_equal(load_digits(15).data, images == 16)


@pytest.mark.parametrize("threshold", [-1, 16, np.nan])
def test_thresholds_that_leave_nothing(threshold):
    with pytest.raises(ValueError, match=rf"threshold is {threshold}; .* in \[0, 16\)"):
        load_digits(threshold)


# ----------------------------------------------------------------- OpenML


def test_openml(monkeypatch, grey, binary, tmp_path):
    asked = []

    def fetch(*args, **kwargs):
        asked.append((args, kwargs))
        return Bunch(data=grey.reshape(12, 784).astype(np.int64), target=np.array(list("501") * 4))

    monkeypatch.setattr(sklearn.datasets, "fetch_openml", fetch)
    found = load_mnist(data_home=tmp_path)
    expect(found, binary, [5, 0, 1] * 4)
    assert "OpenML" in found.DESCR
    assert asked == [(("mnist_784",), {"version": 1, "as_frame": False, "data_home": tmp_path})]


@pytest.mark.parametrize(
    "error", [urllib.error.URLError("no route"), TimeoutError("no route"), OSError("no route")]
)
def test_no_network(monkeypatch, error):
    def fetch(*args, **kwargs):
        raise error

    monkeypatch.setattr(sklearn.datasets, "fetch_openml", fetch)
    with pytest.raises(OSError, match=r"no route.*load_mnist\(path=\.\.\.\): an \.npz") as seen:
        load_mnist()
    assert seen.value.__cause__ is error


# ----------------------------------------------------------------- local files


LAYOUTS = {
    "grey": lambda grey: grey,
    "grey, flat": lambda grey: grey.reshape(-1, 784),
    "grey of 0 to 1": lambda grey: grey / 255,
    "binary": lambda grey: grey >= 128,
    "binary integers": lambda grey: (grey >= 128).astype(np.int64),
    "packed": lambda grey: np.packbits(grey.reshape(-1, 784) >= 128, axis=1),
}


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
def test_files(tmp_path, grey, binary, layout):
    images, labels = layout(grey), np.arange(12, dtype=np.uint8) % 10
    path = tmp_path / "mnist.npz"
    np.savez(path, x_train=images[:9], y_train=labels[:9], x_test=images[9:], y_test=labels[9:])
    found = load_mnist(path)
    expect(found, binary, labels)
    assert str(path) in found.DESCR
    np.save(tmp_path / "images.npy", images)
    alone = load_mnist(str(tmp_path / "images.npy"))
    np.testing.assert_array_equal(alone.data, binary)
    assert alone.target is None


def test_published_file():
    path = DATA / "mnist" / "mnist_binarized_packed.npz"
    if not path.is_file():
        pytest.skip(f"no {path}; set SKLSB_DATA")
    mnist = load_mnist(path)
    assert mnist.data.shape == (70_000, 784)
    assert np.bincount(mnist.target[:60_000]).tolist() == [
        5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949,
    ]  # fmt: skip
    # Ones have the least ink, and all images are dark at the edge.
    ink = [mnist.data[mnist.target == digit].mean() for digit in range(10)]
    assert np.argmin(ink) == 1
    assert not mnist.data[:, [0, 27, 756, 783]].any()


def test_missing_file(tmp_path):
    for path in (tmp_path / "none.npz", tmp_path):
        with pytest.raises(FileNotFoundError, match=r"is no file; give an \.npz file with x_"):
            load_mnist(path)


@pytest.mark.parametrize("content", [b"", b"x,y\n1,2\n", b"\x80\x04K\x01."])
def test_other_files(tmp_path, content):
    path = tmp_path / "file.csv"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"file\.csv cannot be read .*give an \.npz"):
        load_mnist(path)


@pytest.mark.parametrize(
    ("images", "message"),
    [
        (np.zeros((3, 64)), r"images of shape \(3, 64\) and dtype float64; give an"),
        (np.zeros((3, 98)), r"images of shape \(3, 98\) and dtype float64"),
        (np.zeros(784, np.uint8), r"images of shape \(784,\)"),
        (np.zeros((3, 784), complex), "dtype complex128"),
        (np.full((3, 784), -1), "grey levels from -1 to 0; they must be 0 to 255"),
        (np.full((3, 784), 256), "grey levels from 0 to 256"),
        (np.full((3, 784), np.nan), "grey levels from nan to nan"),
    ],
)
def test_wrong_images(tmp_path, images, message):
    np.save(tmp_path / "file.npy", images)
    with pytest.raises(ValueError, match=message):
        load_mnist(tmp_path / "file.npy")


def test_wrong_archives(tmp_path, grey):
    path = tmp_path / "file.npz"
    np.savez(path, x_train=grey, labels=np.zeros(12))
    with pytest.raises(ValueError, match=r"\['labels', 'x_train'\] and lacks \['y_train', 'x_t"):
        load_mnist(path)
    np.savez(path, x_train=grey, y_train=np.zeros(12), x_test=grey, y_test=np.zeros(11))
    with pytest.raises(ValueError, match=r"24 images but labels of shape \(23,\); one label"):
        load_mnist(path)
