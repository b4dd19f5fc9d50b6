"""The command line for models in files: ``sklsb --help``, or ``python -m sklsb --help``."""

import argparse
import math
import os
import re
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import sklsb
from sklsb import exceptions

if TYPE_CHECKING:
    from sklsb.samplers._run.base import BaseSampler

# Exit codes, besides 2 of argparse.
DONE, FAILED, DOUBTFUL, INTERRUPTED = 0, 1, 3, 130
_EPILOG = """\
Exit codes: 0 done; 1 an error, reported on one line; 2 wrong arguments; 3 done, but a warning says
that the answer may be wrong; 130 interrupted, with the draws so far kept.

Examples:
  sklsb info model.uai
  sklsb marginals examples/car.bif --observe starts=no --csv car.csv
  sklsb marginals model.uai --evidence model.uai.evid --out model.uai.MAR
  sklsb sample model.uai --draws 100000 --out run.zarr --resume
  sklsb map G14.txt --format cut --seconds 60
"""


_STANDARD = "-"  # in place of a file of a table


class CommandError(ValueError):
    """Arguments that do not fit together, or the model."""


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")


def _tell(text: str) -> None:
    sys.stderr.write(f"sklsb: {text}\n")


def _sayer(args: argparse.Namespace) -> Callable[[str], None]:
    """Return how results are reported, if a table may take the standard output."""
    return _tell if args.csv == _STANDARD else _say


def _write_table(place: str | Path, table: Any) -> None:
    """Write a data frame as lines with commas."""
    file = sys.stdout if place == _STANDARD else place
    form: Any = {"na_rep": "nan", "lineterminator": "\r\n", "compression": None}
    table.to_csv(file, index=False, **form)


# ----------------------------------------------------------------- models


def _observed(target: Any, words: list[str]) -> dict[Any, Any]:
    """Return the evidence in words NAME=VALUE, or NAME=VALUE:LIKELIHOOD,..."""
    evidence = sklsb.targets._evidence
    found: dict[Any, Any] = {}
    said: dict[int, str] = {}  # by site, as a variable has a name and a number
    names = sklsb.targets._names.Names(target.names)
    for word in words:
        name, value = _parted(word, names, target.state_names)
        variable = int(name) if names.find(name) is None and name.isdecimal() else name
        given: Any = value
        try:
            site = evidence.site_called(target, names, variable, "evidence names the variable")
            # What is a value's name is no list of likelihoods.
            if value not in map(str, evidence.names_of_values(target, site)):
                given = _likelihoods(value) or value
            evidence.weights_of(target, {variable: given})
        except ValueError as error:
            if "," in value and "=" in value:
                raise CommandError(f"{error} Give an --observe to each variable.") from None
            raise
        if site in said:
            raise CommandError(
                f"--observe names variable {target.label(site)!r} twice, as {said[site]!r} and "
                f"{word!r}; give it once."
            )
        said[site], found[target.label(site)] = word, given
    return found


def _likelihoods(text: str) -> dict[str, float]:
    """Return the numbers by value of VALUE:LIKELIHOOD,...; nothing if it is something else."""
    found = dict[str, float]()
    for part in text.split(","):
        name, sign, number = part.rpartition(":")
        try:
            likelihood = float(number)
        except ValueError:
            return {}
        if not sign:
            return {}
        if name in found:
            raise CommandError(f"{text!r} gives the value {name!r} twice; keep one.")
        found[name] = likelihood
    return found


def _parted(word: str, sites: Any, states: Any) -> tuple[str, str]:
    """Return name and value; either may contain an equals sign."""
    found = [(word[:i], word[i + 1 :]) for i, sign in enumerate(word) if sign == "="]
    if not found:
        raise CommandError(f"--observe is {word!r}; give NAME=VALUE.")
    known = [pair for pair in found if sites.find(pair[0]) is not None]
    exact = [pair for pair in known if states and pair[1] in states[sites.find(pair[0])]]
    known = exact or known or found[:1]
    if len(known) > 1:
        raise CommandError(
            f"--observe is {word!r}, which may mean each of the variables "
            f"{[name for name, _ in known]}. Use condition in Python, which takes names apart."
        )
    return known[0]


def _model(args: argparse.Namespace) -> Any:
    """Read the model, with its evidence."""
    found, options = sklsb.io._formats.format_of(args.model, args.format), {}
    if args.beta != 1.0 or "beta" in found.options:
        options["beta"] = args.beta
    if args.colors is not None:
        options["n_colors"] = args.colors
    if args.evidence is not None:
        if "evidence" not in found.options:
            raise CommandError(
                f"--evidence is for formats with evidence files, such as UAI; {args.model} is "
                f"{found.name}. Give what was observed as --observe NAME=VALUE."
            )
        options["evidence"] = args.evidence
    target = found.open(args.model, **options)
    return target.condition(_observed(target, args.observe)) if args.observe else target


def _sampler(args: argparse.Namespace, kind: str | None = None) -> Any:
    """Return the requested sampler, or another kind, not fitted."""
    kinds: dict[str, Any] = {
        "auto": sklsb.AutoSampler,
        "lsb": sklsb.LSBSampler,
        "gibbs": sklsb.GibbsSampler,
        "tempering": sklsb.ParallelTempering,
        "elimination": sklsb.EliminationSampler,
    }
    kind = kind or args.sampler
    options = {"max_memory": args.max_memory} if kind == "elimination" else {}
    common = {"n_chains": args.chains, "random_state": args.seed, "n_jobs": args.jobs}
    return kinds[kind](**common, **options, verbose=_verbose(args))


def _verbose(args: argparse.Namespace) -> int:
    return int(not args.quiet and sys.stderr.isatty())


# ----------------------------------------------------------------- commands


def _sample(args: argparse.Namespace) -> int:
    """Write draws to a store."""
    target, say = _model(args), _sayer(args)
    path = args.out or Path(f"{Path(args.model).name}.zarr")
    left = args.draws
    if path.exists():
        if not args.resume:
            raise CommandError(f"{path} exists; give --resume to go on with it, or another --out.")
        sampler, known = sklsb.extending.BaseSampler.resume(path, target), sklsb.open_draws(path)
        _check_same(args, sampler, known)
        left -= known.sizes["draw"]
    else:
        sampler = _sampler(args).fit(target)
    sampler.set_params(verbose=_verbose(args))
    if left > 0:
        sampler.sample(left, thin=args.thin, store=path)
    done = sklsb.open_draws(path)
    sizes = done.sizes
    say(f"{path}: {sizes['draw']} draws of {sizes['chain']} chains, thin={done.attrs['thin']}")
    found = sampler.run_.disagreement
    if found is not None and target.n_sites:
        r_hat = float(found["r_hat"].max())
        say(f"largest R-hat of a variable: {r_hat:.4g}")
    if args.csv:
        _write_table(args.csv, sklsb.diagnostics.to_frame(done, target))
        say(f"{args.csv}: a row for each draw, chain after chain")
    return DONE


def _check_same(args: argparse.Namespace, sampler: "BaseSampler", known: Any) -> None:
    """Refuse to resume a run that had other options."""
    options = {
        "--sampler": (type(_sampler(args)).__name__, type(sampler).__name__),
        "--chains": (args.chains, known.sizes["chain"]),
        "--thin": (sampler.run_.transitions(args.thin), int(known.attrs["thin"])),
        "--seed": (args.seed, sampler.random_state if args.seed is not None else None),
    }
    other = [f"{name} (there: {is_})" for name, (asked, is_) in options.items() if asked != is_]
    if other:
        raise CommandError(
            f"The store is of a run with other options: {', '.join(other)}. Give the same ones to "
            "go on with it, or another --out."
        )


def _marginals(args: argparse.Namespace) -> int:
    """Write marginals as a .MAR file, and the partition function as a .PR file."""
    is_affordable = sklsb.exact.elimination.answers.is_affordable
    target, method, memory = _model(args), args.method, args.max_memory
    if method == "auto":
        method = "exact" if is_affordable(target, "marginals", memory) else "sample"
        if method == "sample" and not args.quiet:
            _tell("exact marginals take too much (see info); chains estimate them")
    say, path = _sayer(args), args.out or Path(f"{Path(args.model).name}.MAR")
    options = {"max_memory": memory, "verbose": _verbose(args)}
    log_z, log_z_error, kind = math.nan, 0.0, args.sampler
    if args.pr and (method == "exact" or is_affordable(target, "log_partition", memory)):
        log_z = sklsb.exact.log_partition(target, **options)
    estimated = args.pr and math.isnan(log_z)
    if estimated and kind not in ("auto", "tempering"):
        raise CommandError(
            f"--pr needs the partition function, which is too much to compute here, and --sampler "
            f"{kind} does not estimate it. Give --sampler tempering, or leave out --pr."
        )
    if method == "exact":
        found = sklsb.exact.marginals(target, **options)
    else:
        sampler = _sampler(args, "tempering" if estimated else kind).fit(target)
        found = sampler.sample(args.draws, thin=args.thin, record="marginals")
        if estimated:
            log_z, log_z_error = sampler.log_z_, sampler.log_z_error_
    p = found["p"].to_numpy().reshape(target.n_sites, len(target.values))
    rows = [row[:k] for row, k in zip(p, target.cardinalities.tolist(), strict=True)]
    sklsb.io.write_result(path, "MAR", rows)
    told = "exact"
    if method != "exact":
        told = f"largest standard error {float(found['mcse'].max()):.2g}"
        if unknown := int(found["mcse"].isnull().sum()):
            told += f" (unknown for {unknown} values that all draws have, or none)"
    say(f"{path}: marginals of {target.n_sites} variables, {told}")
    if args.csv:
        _write_table(args.csv, sklsb.diagnostics.to_frame(found, target))
        say(f"{args.csv}: the same with names and standard errors")
    if args.pr:
        sklsb.io.write_result(args.pr, "PR", log_z / math.log(10))
        told = _digits(log_z / math.log(10))
        if estimated:
            told += f" +- {log_z_error / math.log(10):.2g}, estimated by tempering"
        say(f"{args.pr}: log10 Z = {told}")
    return DONE


def _map(args: argparse.Namespace) -> int:
    """Write the most probable state as a .MPE file."""
    import numpy as np

    is_affordable = sklsb.exact.elimination.answers.is_affordable
    target, method = _model(args), args.method
    if method == "auto":
        method = "exact" if is_affordable(target, "most_likely", args.max_memory) else "anneal"
    say, path = _sayer(args), args.out or Path(f"{Path(args.model).name}.MPE")
    if method == "exact":
        options = {"max_memory": args.max_memory, "verbose": _verbose(args)}
        found = sklsb.exact.most_likely(target, **options)
    else:
        several = sklsb.anneal(
            target,
            seconds=args.seconds,
            n_chains=args.chains,
            random_state=args.seed,
            verbose=_verbose(args),
        )
        found = sklsb.diagnostics.best_state(several)
        method = "exact" if several.attrs["proven"] else method
    x, lp = found["x"].to_numpy().ravel(), float(found["lp"])
    places = np.searchsorted(target.values, x)
    sklsb.io.write_result(path, "MPE", places)
    if args.csv:
        values = [sklsb.targets._evidence.value_name(target, i, v) for i, v in enumerate(x)]
        columns = {"variable": target.names, "value": values}
        _write_table(args.csv, sklsb.diagnostics.draws.frame(columns, len(x)))
        say(f"{args.csv}: the same with names")
    score, sign = sklsb.io._formats.format_of(args.model, args.format).score
    what = f"{score} = {_digits(0.0 + sign * lp / args.beta)}"  # never -0
    what += " (natural logarithm, not divided by Z)" if score == "log p" else ""
    told = "the best state found, not proven to be the most probable one"
    told = "the most probable state" if method == "exact" else told
    say(f"{path}: {told}, {what}")
    return DONE


def _info(args: argparse.Namespace) -> int:
    """Describe a model and the costs of exact answers."""
    elimination = sklsb.exact.elimination
    answers, costs = elimination.answers, elimination.cost
    target = _model(args)
    sizes = target.cardinalities
    _say(f"model: {target!r}")
    least, most = sizes.min(initial=sizes.max(initial=0)), sizes.max(initial=0)
    values = f"{least}" if least == most else f"{least} to {most}"
    _say(f"variables: {target.n_sites} of {values} values, {target.observed_sites.size} observed")
    if target.graph is not None:
        _say(f"pairs that depend on each other: {target.graph.nnz // 2}")
    struck = None
    for task, words in (
        ("log_partition", "partition function"),
        ("marginals", "marginals"),
        ("most_likely", "most probable state"),
    ):
        try:
            struck = struck or elimination.engine.strike_few(target)
            cost, limits = answers.cost_and_limits(target, task, args.max_memory, struck)
        except (TypeError, ValueError) as error:
            _say(f"exact {words}: no ({error})")
            continue
        told = "too much by default" if args.max_memory is None else "too much"
        told = "fits" if costs.fits(cost, limits) else told
        _say(
            f"exact {words}: {_number(cost.log2_work)} table entries, "
            f"{_number(cost.log2_memory)} bytes, about {costs.duration(cost.seconds)}, {told}"
        )
    return DONE


def _digits(value: float) -> str:
    """Return all digits of a whole number, or the digits of a float that rounding leaves."""
    return f"{value:.0f}" if value.is_integer() and abs(value) <= 2**53 else f"{value:.15g}"


def _number(log2: float) -> str:
    """Return a number below a million in digits, a larger one as a power of two."""
    return f"{2.0**log2:,.0f}" if log2 < 20 else f"2**{log2:.1f}"


# ----------------------------------------------------------------- arguments


def _positive(word: str, others: str = "") -> int:
    if not word.isdecimal() or int(word) < 1:
        raise argparse.ArgumentTypeError(f"{word!r} is not a positive integer{others}")
    return int(word)


def _bytes(word: str) -> float:
    """Return a number of bytes: 8e9, 2**33 or 8G."""
    found = re.fullmatch(r"(?:2\*\*)?([\d.]+(?:e\d+)?)([KMGT]?)B?", word, re.IGNORECASE)
    try:
        number = float(found[1]) if found else 0.0
        number = 2.0**number if word.startswith("2**") else number
    except (ValueError, OverflowError):
        number = 0.0
    if not found or not 1.0 <= number < math.inf:
        raise argparse.ArgumentTypeError(
            f"{word!r} is no number of bytes, such as 8e9, 2**33 or 8G"
        )
    return number * 1000.0 ** " KMGT".index(found[2].upper() or " ")


def _thin(word: str) -> int | str:
    return word if word in ("sweep", "auto") else _positive(word, ', nor "sweep" or "auto"')


def _place(word: str) -> Path:
    if word == "-":
        raise argparse.ArgumentTypeError(
            "'-' would be a file of that name; for the standard output name /dev/stdout"
        )
    return Path(word)


def _file(word: str) -> Path:
    path = _place(word)
    if not path.parent.is_dir():
        raise argparse.ArgumentTypeError(
            f"{word!r} cannot be written: there is no folder {path.parent}"
        )
    return path


def _csv(word: str) -> str | Path:
    return word if word == _STANDARD else _file(word)


def _add_model(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add(
        "model",
        help="file: UAI, BIF, QUBO (Biq Mac, qbsolv, hercules), cut (rudy, G-set), Ergo, libDAI, "
        "DIMACS (formula, graph to colour), qubist, bqpjson, or an archive",
    )
    add("--format", help="name of the format, if the suffix is not known")
    add("--evidence", metavar="FILE", help="evidence file, for UAI and Ergo")
    add(
        "--observe",
        metavar="NAME=VALUE",
        action="append",
        default=[],
        help="observe one variable, or give NAME=VALUE:LIKELIHOOD,... of all its values; may be "
        "given again",
    )
    add("--beta", type=float, default=1.0, help="inverse temperature, for QUBO, cut, qh, bqpjson")
    add("--colors", type=_positive, help="number of colours, for graphs of DIMACS")
    add(
        "--max-memory",
        type=_bytes,
        metavar="BYTES",
        help="for exact answers, such as 8G (default: 2**30, or up to half of the free memory)",
    )
    add("--quiet", action="store_true", help="no progress bar, no warnings")


def _add_chains(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--chains", type=_positive, default=4, help="number of chains")
    add("--seed", type=int, help="the same seed gives the same draws; not in an annealing by time")


def _add_draws(parser: argparse.ArgumentParser, n: int) -> None:
    add = parser.add_argument
    _add_chains(parser)
    add(
        "--sampler",
        choices=("auto", "lsb", "gibbs", "tempering", "elimination"),
        default="auto",
        help="which sampler (default: %(default)s)",
    )
    add("--draws", type=_positive, default=n, help="draws of each chain (default: %(default)s)")
    add(
        "--thin",
        type=_thin,
        default="sweep",
        help='transitions per draw, "sweep" or "auto" (default: a sweep)',
    )
    add("--jobs", type=int, help="threads; -1 for all cores")


def _parser() -> argparse.ArgumentParser:
    plain = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(
        prog="sklsb",
        description="Samples, marginals and most probable states of models in files.",
        epilog=_EPILOG,
        formatter_class=plain,
    )
    parser.add_argument("--version", action="version", version=f"sklsb {sklsb.__version__}")
    commands = parser.add_subparsers(dest="command", required=True)

    def command(
        name: str, run: Callable[[argparse.Namespace], int], words: str
    ) -> argparse.ArgumentParser:
        made = commands.add_parser(name, help=words, description=f"{words[0].upper()}{words[1:]}.")
        made.set_defaults(run=run)
        _add_model(made)
        return made

    sample = command("sample", _sample, "write draws to a store, which can be resumed")
    _add_draws(sample, 1000)
    add = sample.add_argument
    add("--out", type=_place, metavar="FOLDER", help="the store (default: MODEL.zarr)")
    add("--resume", action="store_true", help="go on with the store, up to --draws in all")
    add("--csv", type=_csv, metavar="FILE", help="write all draws too; - is standard output")
    marginals = command("marginals", _marginals, "write the probability of each value as .MAR")
    _add_draws(marginals, 10_000)
    add = marginals.add_argument
    add("--method", choices=("auto", "exact", "sample"), default="auto", help="exact where it fits")
    add("--out", type=_file, metavar="FILE", help="default: MODEL.MAR")
    add("--csv", type=_csv, metavar="FILE", help="write names and errors too; - is standard output")
    add("--pr", type=_file, metavar="FILE", help="write the partition function too, as .PR")
    best = command("map", _map, "write the most probable state as .MPE")
    _add_chains(best)
    add = best.add_argument
    add("--method", choices=("auto", "exact", "anneal"), default="auto", help="exact where it fits")
    add("--seconds", type=float, default=10.0, help="for annealing")
    add("--out", type=_file, metavar="FILE", help="default: MODEL.MPE")
    add("--csv", type=_csv, metavar="FILE", help="write names and values too; - is standard output")
    command("info", _info, "say what a model is, and what exact answers take")
    return parser


def main(arguments: list[str] | None = None) -> int:
    """Run a command; return its exit code.

    Parameters
    ----------
    arguments : list of str, optional
        Default: the arguments of the process.

    Returns
    -------
    int
        0, 1, 3 or 130; ``--help`` explains them.
    """
    args = _parser().parse_args(arguments)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always", UserWarning)
        try:
            code: int = args.run(args)
            sys.stdout.flush()  # else only the end of the process sees that a reader has gone
        except KeyboardInterrupt:
            _tell("interrupted")
            code = INTERRUPTED
        except BrokenPipeError:  # a reader, such as head, has seen enough
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            code = DONE
        except OSError as error:
            _tell(f"error: {_plain(error)}")
            code = FAILED
        except (ValueError, TypeError, MemoryError, ImportError, RuntimeError) as error:
            _tell(f"error: {error}")
            code = FAILED
    shown = [w for w in told if issubclass(w.category, UserWarning)]
    for warning in () if args.quiet else shown:
        _tell(f"warning: {warning.message}")
    return max([code, *map(_code_of, shown)]) if code in (DONE, INTERRUPTED) else code


def _plain(error: OSError) -> str:
    """Return what went wrong with a file, without the number of the error."""
    if error.filename is None or error.strerror is None:
        return str(error)
    if isinstance(error, FileNotFoundError):
        return f"there is no file {error.filename}"
    return f"{error.filename}: {error.strerror[0].lower()}{error.strerror[1:]}"


def _code_of(warning: warnings.WarningMessage) -> int:
    """Return the exit code for a warning."""
    kind = warning.category
    if issubclass(kind, exceptions.InterruptedWarning):
        return INTERRUPTED
    # Frozen variables are most often just certain.
    if issubclass(kind, exceptions.FrozenSitesWarning):
        return DONE
    doubtful = issubclass(kind, exceptions.SamplerWarning | exceptions.PrecisionWarning)
    return DOUBTFUL if doubtful else DONE


__all__ = ["main"]

if __name__ == "__main__":
    sys.exit(main())
