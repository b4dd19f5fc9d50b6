"""The formats of model files, by name and suffix."""

import os
import warnings
from collections.abc import Callable
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path
from pkgutil import resolve_name
from typing import Any, NamedTuple, TypeVar

__all__ = ["Format", "format_of", "formats", "read_model", "register"]

_GROUP = "sklsb.formats"
Reader = TypeVar("Reader", bound=Callable[[Any], Any])


class Format(NamedTuple):
    """A format of model files; `register` makes one.

    Attributes
    ----------
    name : str
        What it is called.
    suffixes : tuple of str
        Ends of file names that tell it, in lower case and with the dot.
    read : callable
        Reads a path.
    target : str or None
        What makes a target of that, as "module:name"; None if ``read`` does.
    options : tuple of str
        Keywords that making the target takes: "evidence" (a file), "beta".
    score : (str, float)
        What log p is called in the unit of the file, and the sign of log p / beta there.
    """

    name: str
    suffixes: tuple[str, ...]
    read: Callable[[Any], Any]
    target: str | None
    options: tuple[str, ...]
    score: tuple[str, float]

    def open(self, path: str | os.PathLike[str], **options: Any) -> Any:
        """Return the target in a file, or say which options the format does not have."""
        for name in options.keys() - set(self.options):
            has = [one for one, other in formats().items() if name in other.options]
            raise ValueError(
                f"{name} is for files of the formats {has}; {path} is of the format {self.name!r}."
            )
        if self.target is None:
            return self.read(path, **options)
        return resolve_name(self.target)(self.read(path), **options)


_FORMATS: dict[str, Format] = {}


def register(
    name: str,
    *suffixes: str,
    target: str | None = None,
    options: tuple[str, ...] = (),
    score: tuple[str, float] = ("log p", 1.0),
) -> Callable[[Reader], Reader]:
    """Declare a format of model files: `read_model` and the command line know it from then on.

    A package that is installed makes its formats known by an entry point of the group
    ``sklsb.formats``, which names the module that calls this function.

    Parameters
    ----------
    name : str
        What the format is called.
    *suffixes : str
        Ends of file names that tell it, as ".uai". Another ".gz" after it does not matter.
    target : str, optional
        What makes a target of that which the function reads, as "module:name". If not given, the
        function returns a target itself.
    options : tuple of str, optional
        Keywords that are passed on to what makes the target: "evidence", a file of observations,
        and "beta", an inverse temperature.
    score : (str, float), default=("log p", 1.0)
        What the command line calls log p of the most probable state, and the sign of log p / beta
        in that unit.

    Returns
    -------
    callable
        A decorator of a function that reads a path; it returns the function as it is.

    Raises
    ------
    ValueError
        If a suffix does not begin with a dot, or it or the name is that of another format.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> from sklsb import Ising
    >>> from sklsb.io import read_model, register
    >>> @register("numbers", ".numbers")
    ... def read_numbers(path):
    ...     field = [float(word) for word in pathlib.Path(path).read_text().split()]
    ...     return Ising([[0.0] * len(field)] * len(field), field)
    >>> path = pathlib.Path(tempfile.mkdtemp(), "three.numbers")
    >>> _ = path.write_text("0.5 -1 2")
    >>> read_model(path)
    Ising(3 sites, 0 couplings)
    """

    def declare(read: Reader) -> Reader:
        known = _FORMATS.get(name)
        if known is not None and known.read.__module__ != read.__module__:
            raise ValueError(
                f"the format {name!r} is that of {known.read.__module__}; give another name."
            )
        for suffix in suffixes:
            others = [f for f in _FORMATS.values() if suffix.lower() in f.suffixes]
            if not suffix.startswith(".") or suffix in (".", ".gz"):
                raise ValueError(f"the suffix {suffix!r} must begin with a dot, and not be .gz.")
            if others and others[0].name != name:
                raise ValueError(
                    f"the suffix {suffix!r} is that of the format {others[0].name!r}; give another."
                )
        lower = tuple(suffix.lower() for suffix in suffixes)
        _FORMATS[name] = Format(name, lower, read, target, options, score)
        return read

    return declare


@cache
def _load_entry_points() -> None:
    for point in entry_points(group=_GROUP):
        try:
            point.load()
        except Exception as error:  # noqa: BLE001  # one at fault must not stop all others
            warnings.warn(
                f"The entry point {point.name} = {point.value} of the group {_GROUP} failed, so "
                f"its formats are not known: {type(error).__name__}: {error}",
                UserWarning,
                stacklevel=2,
            )


def formats() -> dict[str, Format]:
    """Return the formats that are known, by name: those of sklsb, entry points and `register`."""
    _load_entry_points()
    return dict(sorted(_FORMATS.items()))


def format_of(path: str | os.PathLike[str], name: str | None = None) -> Format:
    """Return the format of a file, by its name or that of the format.

    Parameters
    ----------
    path : path-like
        The file.
    name : str, optional
        Name of the format, if that of the file does not tell it.

    Returns
    -------
    Format

    Raises
    ------
    ValueError
        If it is unknown; the message lists the known ones.
    """
    known = formats()
    listed = ", ".join(f"{f.name} ({', '.join(f.suffixes)})" for f in known.values())
    if name is not None:
        if name not in known:
            raise ValueError(f"the format is {name!r}; known are {listed}.")
        return known[name]
    suffixes = [suffix.lower() for suffix in Path(path).suffixes if suffix.lower() != ".gz"]
    for found in known.values():
        if suffixes and suffixes[-1] in found.suffixes:
            return found
    raise ValueError(
        f"{os.fspath(path)} does not tell its format by its name; give it as format, or --format "
        f"on the command line. Known are {listed}; sklsb.io.register declares others."
    )


def read_model(path: str | os.PathLike[str], format: str | None = None, **options: Any) -> Any:
    r"""Read a model of any known format as a target.

    Parameters
    ----------
    path : path-like
        The file.
    format : str, optional
        Name of the format, if that of the file does not tell it.
    **options
        ``evidence``, a file of observations, for formats that have one (UAI); ``beta``, the inverse
        temperature, for problems of optimisation (QUBO, cuts).

    Returns
    -------
    Target

    Raises
    ------
    ValueError
        If the format is unknown, has no such option, or the file is not of the format.
    OSError
        If the file cannot be opened.

    See Also
    --------
    register : declares another format.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> from sklsb.io import read_model
    >>> path = pathlib.Path(tempfile.mkdtemp(), "path.mc")
    >>> _ = path.write_text("3 2\n1 2 1\n2 3 -1\n")
    >>> read_model(path, beta=2.0)
    Ising(3 sites, 2 couplings)
    """
    return format_of(path, format).open(path, **options)
