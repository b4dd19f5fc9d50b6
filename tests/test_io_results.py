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
    io.write_mar(tmp_path / "a", marginals)
    for p, q in zip(io.read_mar(tmp_path / "a"), marginals, strict=True):
        np.testing.assert_array_equal(p, q)
    io.write_pr(tmp_path / "b", -1 / 3)
    assert io.read_pr(tmp_path / "b") == -1 / 3
    io.write_mpe(tmp_path / "c", np.array([1, 0, 4], dtype=np.int8))
    assert io.read_mpe(tmp_path / "c").tolist() == [1, 0, 4]
    io.write_mar(tmp_path / "d", [])
    assert io.read_mar(tmp_path / "d") == []
    io.write_mpe(tmp_path / "e", [])
    assert io.read_mpe(tmp_path / "e").size == 0


@pytest.mark.parametrize(
    ("read", "text", "expected"),
    [
        (io.read_mar, "MAR\n1 2 0.25 0.75", [[0.25, 0.75]]),
        (io.read_mar, "MAR\n1\n1 2 0.25 0.75", [[0.25, 0.75]]),
        (io.read_mar, "MAR 1 2 1 1 2 0.5 0.5", [[1.0], [0.5, 0.5]]),
        (io.read_mar, "MAR 1 1 1", [[1.0]]),
        (io.read_pr, "PR\n1", 1.0),
        (io.read_pr, "PR\n1\n-7.5e-1", -0.75),
        (io.read_mpe, "MPE\n1 3", [3]),
        (io.read_mpe, "MPE\n1\n2 3 0", [3, 0]),
        (io.read_mpe, "MPE\n1\n1 3", [3]),
    ],
)
def test_both_formats(tmp_path, read, text, expected):
    found = read(save(tmp_path, text))
    assert (found if read is io.read_pr else [np.asarray(p).tolist() for p in found]) == expected


@pytest.mark.parametrize(
    ("read", "text", "line", "column", "message"),
    [
        (io.read_mar, "", 1, 1, "found the end of the file where the kind of result must stand"),
        (io.read_mar, "PR\n1", 1, 1, "found 'PR' where the kind of result"),
        (io.read_mar, "MAR\n2 2 0.5 0.5", 2, 12, "the number of values of variable 1 of 2"),
        (io.read_mar, "MAR\n1 2 0.5 1.5", 2, 9, "found '1.5' where number 2 of 2 of the prob"),
        (io.read_mar, "MAR\n2 1 -1 1 1", 2, 5, "found '-1'"),
        (io.read_mar, "MAR\n2 1 nan 1 1", 2, 5, "found 'nan'"),
        (io.read_mar, "MAR\n2 0 1 1", 2, 3, "found '0' where the number of values of variable 0"),
        (io.read_mar, "MAR\n2 1 1 1 1 7", 2, 11, "found '7' where the end of the file"),
        (io.read_pr, "PR", 1, 3, "found the end of the file where number 1 of 1 of the logarithm"),
        (io.read_pr, "PR\n-inf", 2, 1, "found '-inf'"),
        (io.read_pr, "PR\n2.5 3", 2, 5, "found '3' where the end of the file"),
        (io.read_mpe, "MPE\n2 1", 2, 4, "the value of variable 1 of 2"),
        (io.read_mpe, "MPE\n2 1 -1", 2, 5, "found '-1' where the value of variable 1 of 2"),
        (io.read_mpe, "MPE\n2 1 1 1", 2, 7, "found '1' where the end of the file"),
        (io.read_mpe, "MPE\n99999999999999999999 1", 2, 1, "the number of variables"),
    ],
)
def test_anything_else_is_refused(tmp_path, read, text, line, column, message):
    with pytest.raises(io.UAIFormatError, match=message) as caught:
        read(save(tmp_path, text))
    assert (caught.value.line, caught.value.column) == (line, column)


@pytest.mark.parametrize(
    "text", ["MAR\n1\n2 2 0.25 0.75 3 1e-3 0.5 .499", "PR\n1\n-12.5", "MPE\n3 1 0 12"]
)
def test_every_part_of_a_file_is_read_or_refused(tmp_path, text):
    read = {"MAR": io.read_mar, "PR": io.read_pr, "MPE": io.read_mpe}[text.split()[0]]
    path = tmp_path / "file"
    for end in range(len(text)):
        path.write_bytes(text[:end].encode())
        with contextlib.suppress(io.UAIFormatError):
            read(path)
    path.write_bytes(gzip.compress(text.encode()))
    read(path)
    with pytest.raises(OSError, match="absent"):
        read(tmp_path / "absent")


def test_what_would_be_refused_is_not_written(tmp_path):
    path = tmp_path / "file"
    for write, value in (
        (io.write_mar, [[0.5, 1.5]]),
        (io.write_mar, [[np.nan]]),
        (io.write_mar, [[]]),
        (io.write_pr, -np.inf),
        (io.write_mpe, [0, -1]),
        (io.write_mpe, [0.5]),
    ):
        with pytest.raises(io.UAIFormatError):
            write(path, value)
        assert not path.exists()
