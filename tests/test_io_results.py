"""Result files of the UAI competitions."""

import contextlib
import gzip

import numpy as np
import pytest

from sklsb import io


def save(tmp_path, text):
    path = tmp_path / "result"
    path.write_text(text)
    return path


def test_what_is_written_is_read(tmp_path):
    rng = np.random.default_rng(0)
    marginals = [rng.dirichlet(np.ones(k)) for k in (2, 3, 1, 5)]
    io.write_result(tmp_path / "a", "MAR", marginals)
    for p, q in zip(io.read_result(tmp_path / "a"), marginals, strict=True):
        np.testing.assert_array_equal(p, q)
    io.write_result(tmp_path / "b", "PR", -1 / 3)
    assert io.read_result(tmp_path / "b") == -1 / 3
    io.write_result(tmp_path / "c", "MPE", np.array([1, 0, 4], dtype=np.int8))
    assert io.read_result(tmp_path / "c").tolist() == [1, 0, 4]
    io.write_result(tmp_path / "d", "MAR", [])
    assert io.read_result(tmp_path / "d") == []
    io.write_result(tmp_path / "e", "MPE", [])
    assert io.read_result(tmp_path / "e").size == 0


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("MAR\n1 2 0.25 0.75", [[0.25, 0.75]]),
        ("MAR\n1\n1 2 0.25 0.75", [[0.25, 0.75]]),
        ("MAR 1 2 1 1 2 0.5 0.5", [[1.0], [0.5, 0.5]]),
        ("MAR 1 1 1", [[1.0]]),
        ("PR\n1", 1.0),
        ("PR\n1\n-7.5e-1", -0.75),
        ("MPE\n1 3", [3]),
        ("MPE\n1\n2 3 0", [3, 0]),
        ("MPE\n1\n1 3", [3]),
    ],
)
def test_both_formats(tmp_path, text, expected):
    found = io.read_result(save(tmp_path, text))
    if not isinstance(found, float):
        found = [np.asarray(p).tolist() for p in found]
    assert found == expected


@pytest.mark.parametrize(
    ("text", "line", "column", "message"),
    [
        ("", 1, 1, "found the end of the file where the kind of result must stand"),
        ("LD\n1", 1, 1, "found 'LD' where the kind of result .* 'MAR' or 'PR' or 'MPE'"),
        ("MAR\n2 2 0.5 0.5", 2, 12, "the number of values of variable 1 of 2"),
        ("MAR\n1 2 0.5 1.5", 2, 9, "found '1.5' where number 2 of 2 of the prob"),
        ("MAR\n2 1 -1 1 1", 2, 5, "found '-1'"),
        ("MAR\n2 1 nan 1 1", 2, 5, "found 'nan'"),
        ("MAR\n2 0 1 1", 2, 3, "found '0' where the number of values of variable 0"),
        ("MAR\n2 1 1 1 1 7", 2, 11, "found '7' where the end of the file"),
        ("PR", 1, 3, "found the end of the file where number 1 of 1 of the logarithm"),
        ("PR\n-inf", 2, 1, "found '-inf'"),
        ("PR\n2.5 3", 2, 5, "found '3' where the end of the file"),
        ("MPE\n2 1", 2, 4, "the value of variable 1 of 2"),
        ("MPE\n2 1 -1", 2, 5, "found '-1' where the value of variable 1 of 2"),
        ("MPE\n2 1 1 1", 2, 7, "found '1' where the end of the file"),
        ("MPE\n99999999999999999999 1", 2, 1, "the number of variables"),
    ],
)
def test_anything_else_is_refused(tmp_path, text, line, column, message):
    with pytest.raises(io.UAIFormatError, match=message) as caught:
        io.read_result(save(tmp_path, text))
    assert (caught.value.line, caught.value.column) == (line, column)


@pytest.mark.parametrize(
    "text", ["MAR\n1\n2 2 0.25 0.75 3 1e-3 0.5 .499", "PR\n1\n-12.5", "MPE\n3 1 0 12"]
)
def test_every_part_of_a_file_is_read_or_refused(tmp_path, text):
    path = tmp_path / "file"
    for end in range(len(text)):
        path.write_bytes(text[:end].encode())
        with contextlib.suppress(io.UAIFormatError):
            io.read_result(path)
    path.write_bytes(gzip.compress(text.encode()))
    io.read_result(path)
    with pytest.raises(OSError, match="absent"):
        io.read_result(tmp_path / "absent")


def test_what_would_be_refused_is_not_written(tmp_path):
    path = tmp_path / "file"
    for kind, value in (
        ("MAR", [[0.5, 1.5]]),
        ("MAR", [[np.nan]]),
        ("MAR", [[]]),
        ("PR", -np.inf),
        ("MPE", [0, -1]),
        ("MPE", [0.5]),
    ):
        with pytest.raises(io.UAIFormatError):
            io.write_result(path, kind, value)
        assert not path.exists()
    with pytest.raises(ValueError, match='kind is \'mar\'; give "MAR", "PR" or "MPE"'):
        io.write_result(path, "mar", [[1.0]])
