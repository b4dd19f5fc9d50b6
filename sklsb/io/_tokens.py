"""Tokens of a text file that know where they stand."""

import itertools
import math
import os
import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from sklsb._system.arrays import Array
from sklsb.io._compression import CompressionError, unpack

PathLike = str | os.PathLike[str]
_BOM = b"\xef\xbb\xbf"
_LINE_END = re.compile(rb"\r\n|\r|\n")
_LONGEST_SHOWN = 40
# float() would also take 1_000, nan and inf.
_is_number = re.compile(rb"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?").fullmatch
LARGEST_INTEGER = 10**18
READABLE = "UAI, BIF, QUBO (Biq Mac, qbsolv, hercules) and cuts (rudy, G-set)"
_COMMENTS = rb"(?:c[^\r\n]*[\r\n]\s*)*"
# First words of other formats, and these, with the formats that read them. Only lines of comments
# precede that of DIMACS.
_FOREIGN = {
    rb"(<[^\s>]*)": ("XML, such as XMLBIF", "pyagrum"),
    rb"(net)\b[^{]{0,100}\{": ("Hugin NET or of GeNIe", "pyagrum"),
    _COMMENTS + rb"(p\s+cnf)\b": ("DIMACS, a formula", "cnf"),
    _COMMENTS + rb"(p\s+(?:edges?|col))\b": ("DIMACS, a graph to colour", "col"),
    _COMMENTS + rb"(p\s+(?!qubo\b)[a-z]+)": ("DIMACS, such as MaxSAT", None),
    rb"(\{)": ("JSON, such as bqpjson", "bqpjson"),
    rb"(%%MatrixMarket)": ("Matrix Market", None),
    rb"(LIMID|ID)\s": ("influence diagrams, with decisions and utilities", None),
    rb"(CAUSAL)\s": ("structural causal models", None),
}


class FormatError(ValueError):
    """A file that does not follow its format.

    Attributes
    ----------
    path : str
        The file.
    line, column : int
        Place of the fault, counted from 1; columns in characters.
    problem : str
        What was found there, and what is allowed.
    """

    def __init__(self, path: str, line: int, column: int, problem: str):
        super().__init__(path, line, column, problem)
        self.path, self.line, self.column, self.problem = path, line, column, problem

    def __str__(self) -> str:
        return f"{self.path}, line {self.line}, column {self.column}: {self.problem}"


class Tokens:
    """The tokens of a file, taken one after the other; ``at`` is the index of the next one.

    The file may be compressed and may begin with a byte-order mark. ``pattern`` matches a
    token; what ``comment`` matches is blanked out, unless it begins with a quotation mark. What
    begins as a file of another format than ``own`` is refused.
    """

    def __init__(
        self,
        path: PathLike,
        error: type[FormatError] = FormatError,
        pattern: bytes = rb"\S+",
        comment: bytes | None = None,
        data: bytes | None = None,
        own: str | None = None,
    ):
        self.path, self.error, self._pattern = os.fspath(path), error, re.compile(pattern)
        self.data = self._unpack(Path(path).read_bytes()) if data is None else data
        self._refuse_foreign(own)
        # Of the same length, so that tokens stand in it where they stand in the file.
        self.code = self.data
        if comment is not None:
            self.code = re.sub(comment, _blank, self.data, flags=re.DOTALL)
        self.words: list[bytes] = self._pattern.findall(self.code)
        self.at = 0

    def _unpack(self, data: bytes) -> bytes:
        parts: list[bytes] = []
        try:
            parts.extend(unpack(data))
        except CompressionError as error:
            self.data = b"".join(parts).removeprefix(_BOM)
            raise self.wrong_at(len(self.data), str(error)) from error
        return b"".join(parts).removeprefix(_BOM)

    def _refuse_foreign(self, own: str | None) -> None:
        for pattern, (name, reader) in _FOREIGN.items():
            match = re.match(rb"\s*" + pattern, self.data)
            if match and (reader is None or reader != own):
                told = f"; give format={reader!r}" if reader else f"; sklsb reads {READABLE}"
                problem = f"found {show(match[1])}, which begins a file of {name}{told}."
                raise self.wrong_at(match.start(1), problem)
            if match:
                return

    def wrong_at(self, offset: int, problem: str) -> FormatError:
        ends = [match.end() for match in _LINE_END.finditer(self.data, 0, offset)]
        start = ends[-1] if ends else 0
        column = len(self.data[start:offset].decode("utf-8", "replace")) + 1
        return self.error(self.path, len(ends) + 1, column, problem)

    def wrong(self, index: int, what: str, allowed: str) -> FormatError:
        if index < len(self.words):
            found = show(self.words[index])
            matches = self._pattern.finditer(self.code)
            offset = next(itertools.islice(matches, index, None)).start()
        else:
            found, offset = "the end of the file", len(self.code.rstrip())
        return self.wrong_at(
            offset, f"found {found} where {what} must stand; allowed is {allowed}."
        )

    def words_by_line(self) -> list[int]:
        """Count the tokens of each line that has any."""
        counts = (len(self._pattern.findall(line)) for line in _LINE_END.split(self.code))
        return [count for count in counts if count]

    def peek(self) -> bytes:
        """Return the next token without taking it; b"" at the end of the file."""
        return self.words[self.at] if self.at < len(self.words) else b""

    def next(self, what: str, allowed: str) -> bytes:
        if self.at >= len(self.words):
            raise self.wrong(self.at, what, allowed)
        self.at += 1
        return self.words[self.at - 1]

    def keyword(self, what: str, words: Sequence[bytes]) -> bytes:
        """Take a token that must be one of the words, in capital letters or not; return this."""
        allowed = " or ".join(map(show, words))
        given = self.next(what, allowed).lower()
        for word in words:
            if word.lower() == given:
                return word
        raise self.wrong(self.at - 1, what, allowed)

    def integer(self, what: str, low: int, high: int = LARGEST_INTEGER, why: str = "") -> int:
        allowed = f"{low}" if low == high else f"an integer from {low} to {high}"
        word = self.next(what, allowed + why)
        # Not int(word) at once: it would take 1_000, and raise for thousands of digits.
        if not (word.isdigit() and len(word) < 20 and low <= int(word) <= high):
            raise self.wrong(self.at - 1, what, allowed + why)
        return int(word)

    def distinct(self, count: int, what: str, low: int, high: int, but: int = -1) -> list[int]:
        """Take numbers of variables, each once and none ``but``."""
        found: list[int] = []
        for _ in range(count):
            number = self.integer(what, low, high)
            if number in (but, *found):
                other = "" if but < 0 else "other "
                raise self.wrong(self.at - 1, what, f"each {other}variable once")
            found.append(number)
        return found

    def numbers(self, count: int, what: str, low: float = -math.inf) -> Array:
        """Take finite numbers, each the float64 nearest to what is written."""
        chunk = self.words[self.at : self.at + count]
        values = floats(chunk)
        bad = ~((values >= low) & np.isfinite(values))
        if bad.any() or len(chunk) < count:
            i = int(bad.argmax()) if bad.any() else len(chunk)
            allowed = "a finite number" + (", not negative" if low == 0 else "")
            raise self.wrong(self.at + i, f"number {i + 1} of {count} of {what}", allowed)
        self.at += count
        return values

    def end(self, what: str) -> None:
        if self.at < len(self.words):
            raise self.wrong(self.at, "the end of the file", f"nothing after {what}")


def show(word: bytes) -> str:
    """Return a token as messages show it."""
    text = word.decode("utf-8", "backslashreplace")
    return repr(text if len(text) <= _LONGEST_SHOWN else text[:_LONGEST_SHOWN] + "...")


def floats(words: list[bytes]) -> Array:
    """Return each word as a number; NaN if it is none."""
    if b"_" not in b"".join(words):
        try:
            return np.array(list(map(float, words)))
        except ValueError:
            pass
    return np.array([float(word) if _is_number(word) else math.nan for word in words])


def _blank(match: re.Match[bytes]) -> bytes:
    text: bytes = match[0]
    return text if text.startswith(b'"') else re.sub(rb"[^\r\n]", b" ", text)
