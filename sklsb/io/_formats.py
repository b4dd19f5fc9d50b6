"""The formats of model files, by name and suffix."""

from collections.abc import Callable
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path
from pkgutil import resolve_name
from typing import Any, NamedTuple, TypeVar

from sklsb._system.warn import warn
from sklsb.io._compression import SUFFIXES, without_suffix
from sklsb.io._tokens import PathLike, Tokens
from sklsb.io.agrum import read_agrum
from sklsb.io.dimacs import cnf_model, read_col
from sklsb.io.factor_graphs import read_erg, read_fg
from sklsb.io.qubo import read_bqpjson, read_maxcut, read_qh, read_qubo

_GROUP = "sklsb.formats"
Reader = TypeVar("Reader", bound=Callable[..., Any])


class Format(NamedTuple):
    """A format of model files; `register` describes its parts.

    What ``read`` returns is made a target by ``target``, "module:name"; without, it is one.
    """

    name: str
    suffixes: tuple[str, ...]
    read: Callable[..., Any]
    target: str | None = None
    options: tuple[str, ...] = ()
    score: tuple[str, float] = ("log p", 1.0)

    def open(self, path: PathLike, **options: Any) -> Any:
        """Return the target in a file, or say which options the format does not have."""
        for name in options.keys() - set(self.options):
            has = [one for one, other in formats().items() if name in other.options]
            raise ValueError(
                f"{name} is for files of the formats {has}; {path} is of the format {self.name!r}."
            )
        if self.target is None:
            return self.read(path, **options)
        return resolve_name(self.target)(self.read(path), **options)


_NETWORK, _ISING = "sklsb.targets:MarkovNetwork", "sklsb.targets:Ising"
_CUTS, _QUBO = (".mc", ".rud", ".rudy", ".cut"), (".qubo", ".sparse")
_ENERGY = ("energy", -1.0)
_AGRUM = (".net", ".xmlbif", ".bifxml", ".xdsl", ".dsl")
_OWN = [
    Format("bif", (".bif",), Path, f"{_NETWORK}.from_bif"),
    Format("bqpjson", (".bqpjson",), read_bqpjson, f"{_ISING}.from_bqm", ("beta",), _ENERGY),
    Format("cnf", (".cnf",), cnf_model, f"{_NETWORK}._from_model"),
    Format("col", (".col",), read_col, "sklsb.targets._files:colorings", ("n_colors",)),
    Format("cut", _CUTS, read_maxcut, f"{_ISING}.from_maxcut", ("beta",), ("cut", 1.0)),
    Format("erg", (".erg",), read_erg, f"{_NETWORK}._from_model", ("evidence",)),
    Format("fg", (".fg",), read_fg, f"{_NETWORK}._from_model"),
    Format("pyagrum", _AGRUM, read_agrum, f"{_NETWORK}._from_model"),
    Format("qh", (".qh",), read_qh, f"{_ISING}.from_bqm", ("beta",), _ENERGY),
    Format("qubo", _QUBO, read_qubo, f"{_ISING}.from_qubo", ("beta",), ("x'Qx", -1.0)),
    Format("uai", (".uai",), Path, f"{_NETWORK}.from_uai", ("evidence",)),
]
_FORMATS = {own.name: own for own in _OWN}


def register(
    name: str,
    *suffixes: str,
    options: tuple[str, ...] = (),
    score: tuple[str, float] = ("log p", 1.0),
) -> Callable[[Reader], Reader]:
    """Declare a format of model files, for `read_model` and the command line.

    An installed package makes its formats known by an entry point of the group ``sklsb.formats``
    that names the module which calls this function.

    Parameters
    ----------
    name : str
        Name of the format.
    *suffixes : str
        Ends of file names, such as ".uai". A suffix of compression after it is ignored.
    options : tuple of str, optional
        Keywords that the reader takes: "evidence", a file of observations, or "beta", an inverse
        temperature.
    score : (str, float), default=("log p", 1.0)
        How the command line reports log p of the most probable state: a name, and the sign of
        log p / beta.

    Returns
    -------
    callable
        A decorator of a function that takes a path and returns a target.

    Raises
    ------
    ValueError
        If a suffix does not begin with a dot, or the suffix or the name is taken.

    Notes
    -----
    ``doc/files.rst`` has an example.
    """

    def declare(read: Reader) -> Reader:
        known = _FORMATS.get(name)
        if known is not None and known.read.__module__ != read.__module__:
            raise ValueError(
                f"the format {name!r} belongs to {known.read.__module__}; give another name."
            )
        for suffix in suffixes:
            if not suffix.startswith(".") or suffix.lower() in (".", *SUFFIXES):
                not_one = " or ".join(SUFFIXES)
                raise ValueError(
                    f"the suffix {suffix!r} must begin with a dot, and not be {not_one}."
                )
            for other in _FORMATS.values():
                if suffix.lower() in other.suffixes and other.name != name:
                    raise ValueError(
                        f"the suffix {suffix!r} belongs to the format {other.name!r}; give another."
                    )
        lower = tuple(suffix.lower() for suffix in suffixes)
        _FORMATS[name] = Format(name, lower, read, None, options, score)
        return read

    return declare


@cache
def _load_entry_points() -> None:
    for point in entry_points(group=_GROUP):
        try:
            point.load()
        except Exception as error:  # noqa: BLE001  # one at fault must not stop all others
            warn(
                f"The entry point {point.name} = {point.value} of the group {_GROUP} failed, so "
                f"its formats are not known: {type(error).__name__}: {error}",
                UserWarning,
            )


def formats() -> dict[str, Format]:
    """Return the known formats by name: built in, of entry points and of `register`."""
    _load_entry_points()
    return dict(sorted(_FORMATS.items()))


def format_of(path: PathLike, name: str | None = None) -> Format:
    """Return the format of a file, by the suffix of the file or the name of the format."""
    known = formats()
    listed = ", ".join(f"{f.name} ({', '.join(f.suffixes)})" for f in known.values())
    if name is not None:
        if name not in known:
            raise ValueError(f"the format is {name!r}; known are {listed}.")
        return known[name]
    end = without_suffix(Path(path).name)
    suffixes = [(suffix, f) for f in known.values() for suffix in f.suffixes]
    fitting = [one for one in suffixes if end.endswith(one[0]) and end != one[0]]
    if fitting:
        return max(fitting, key=lambda one: len(one[0]))[1]
    Tokens(path)  # a missing file comes first, or another format that the content shows
    raise ValueError(
        f"{path} has no suffix of a known format; give format, or on the "
        f"command line --format. Known are {listed}; sklsb.io.register declares others."
    )


def read_model(path: PathLike, format: str | None = None, **options: Any) -> Any:
    r"""Read a model of any known format as a target.

    Parameters
    ----------
    path : path-like
        The file.
    format : str, optional
        Name of the format, if the suffix is not known.
    **options
        ``evidence``, a file of observations (UAI, Ergo); ``beta``, the inverse temperature (QUBO,
        cuts, qubist, bqpjson); ``n_colors``, the number of colours (graphs of DIMACS).

    Returns
    -------
    Target

    Raises
    ------
    ValueError
        If the format is unknown or has no such option, or the file does not follow it.
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
