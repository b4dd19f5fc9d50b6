"""Many chains, wherever joblib runs them: threads, processes, machines."""

import copy
import os
import uuid
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import joblib
import numpy as np
import xarray as xr
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from sklsb._system.arrays import Bools
from sklsb._system.memory import check_fits
from sklsb._system.progress import Progress, deferred_interrupt
from sklsb.diagnostics.tally import RareValue, Tally
from sklsb.ensembles.base import Counters
from sklsb.ensembles.streams import Streams, spawn
from sklsb.exceptions import StoreError
from sklsb.samplers._run.base import BaseSampler
from sklsb.samplers._run.burn_in import run_burn_in
from sklsb.samplers._run.checks import check_count, check_n_chains, check_thin
from sklsb.samplers._run.observers import Statistics, check_record
from sklsb.samplers._run.run import Run, exclusive
from sklsb.samplers._run.saving import packed_sampler
from sklsb.samplers._run.watch import Watch
from sklsb.samplers.auto import AutoSampler
from sklsb.storage.codec import digest_of
from sklsb.storage.parts import Parts
from sklsb.storage.stores import needs_zarr, open_draws

# Abandoned runs of this process.
_ENDED: set[str] = set()


class _Job(NamedTuple):
    """The task of all workers."""

    name: str
    n: int
    thin: int
    record: Statistics
    n_burn_in: int
    n_chains: int
    seed: np.random.SeedSequence
    kept: tuple[RareValue, ...]
    fitted: dict[str, Any]  # attributes of the samplers of stores


class _Done(NamedTuple):
    """The result of a worker."""

    draws: xr.Dataset | None  # None if in a store
    x: NDArray[Any]
    moved: Bools
    evaluations: int
    counters: Counters
    acceptance: float | None
    n_rated: int  # draws that it is the mean of
    findings: dict[str, NDArray[Any]]


class _Watch(Watch):
    """Ends a run that its process has abandoned.

    Threads see that; other processes are ended by the process that started them.
    """

    name = ""

    def ends(self) -> bool:
        """Whether the run was abandoned."""
        return self.name in _ENDED


def sample_chains(
    sampler: BaseSampler,
    n: int,
    *,
    n_chains: int,
    n_burn_in: int | None = None,
    thin: int | str = 1,
    record: Statistics | None = None,
    store: str | os.PathLike[str] | None = None,
    random_state: Any = None,
    n_jobs: int | None = None,
) -> xr.Dataset:
    """Burn in and draw with many new chains of a fitted sampler, on several workers.

    The chains share what the sampler learned in `fit`: its balancing function, blocks or
    temperatures, which are frozen. Each chain starts anew, makes a burn-in and draws.
    ``joblib.parallel_config`` decides where: in threads, in processes, or on a Dask cluster.

    Parameters
    ----------
    sampler : fitted sampler
        Its own chains stay where they are.
    n : int
        Draws of each chain; with a store, including those already in it.
    n_chains : int
        Number of chains.
    n_burn_in : int, optional
        Transitions of each chain before its first draw; by default as in `fit`.
    thin : int, "sweep" or "auto", default=1
        Transitions per draw, as in ``sample``.
    record : dict of name to callable, optional
        Statistics instead of the states, as in ``sample``.
    store : path-like, optional
        Folder, visible to all workers, in which each writes a store of its chains.
        `sklsb.open_draws` opens them together. Repeating the call goes on after a crash, and draws
        more if n is larger.
    random_state : int, SeedSequence, Generator, RandomState or None, default=None
        Seed; by default derived from the sampler's, so that the same call gives the same draws.
    n_jobs : int, optional
        Number of workers, as in ``joblib.Parallel``; by default as ``parallel_config`` says, or 1.
        -1 for all cores.

    Returns
    -------
    xarray.Dataset
        As from ``sample``, for all chains. The draws do not depend on where chains ran or how they
        were divided, bit for bit; except with ``fast=True``, where the rounding of log-ratios
        depends on the number of chains run together.

    Raises
    ------
    sklearn.exceptions.NotFittedError
        Before `fit`.
    ValueError, TypeError
        If an argument is not as described.
    StoreError
        If the store belongs to another run; a ValueError that says what differs.
    MemoryError
        Before any work, if the draws do not fit in free memory.

    Warns
    -----
    SamplerWarning
        As ``sample``, about all chains together.

    Examples
    --------
    >>> import joblib
    >>> import numpy as np
    >>> import sklsb
    >>> ising = sklsb.Ising.lattice(np.full((8, 8), 0.2), coupling=0.3)
    >>> sampler = sklsb.LSBSampler("barker", n_chains=2, random_state=0).fit(ising)
    >>> with joblib.parallel_config(backend="threading", n_jobs=2):
    ...     draws = sklsb.sample_chains(sampler, 100, n_chains=10, thin="sweep")
    >>> dict(draws.sizes)
    {'chain': 10, 'draw': 100, 'row': 8, 'col': 8}
    """
    if not isinstance(sampler, BaseSampler):
        raise TypeError(f"sampler is {sampler!r:.200}; give a fitted sampler of sklsb.")
    check_is_fitted(sampler, "target_")
    thin, wanted = check_thin(thin), check_record(record)
    if not isinstance(wanted, dict):
        raise ValueError(
            f"record is {wanted!r}, which one sampler keeps; give a dict of callables here."
        )
    run = sampler._here()
    if n_burn_in is None:
        n_burn_in = _burn_in_of(sampler)
    own = run.ensemble
    # Distinct from the chains of a sampler with the same seed.
    streams = own.streams if random_state is None else Streams(spawn(random_state, 1))
    job = _Job(
        name=uuid.uuid4().hex,
        n=check_count(n, "n", 0),
        thin=1,
        record=wanted,
        n_burn_in=check_count(n_burn_in, "n_burn_in", 0),
        n_chains=check_n_chains(n_chains, run.target),
        seed=streams.root("workers"),
        kept=own.counters.tally.kept if own.counters.tally is not None else (),
        fitted={} if store is None else _fitted_of(sampler),
    )
    if store is None and not wanted:
        check_fits(
            job.n_chains * job.n * (run.target.n_sites * run.target.dtype.itemsize + 8),
            f"sample_chains with {job.n} draws of {job.n_chains} chains of {run.target.n_sites} "
            "variables",
            'Write the draws to the disk, store="runs"; keep statistics, record; or make fewer '
            "draws that are farther apart, thin.",
        )
    with exclusive(run):
        run.follow_target()
        job = job._replace(thin=run.transitions(thin))
        check_count(job.n * job.thin, "n * thin", 0)
        template = _template(run, job)
    attrs = template.attrs() | {"thin": job.thin}
    spans, paths = _divided(template, job, n_jobs, None if store is None else Path(store))
    calls = zip(spans, paths, strict=True)
    # Memory-mapped arrays are read-only, and kernels are not compiled for those.
    parallel = joblib.Parallel(n_jobs=n_jobs, max_nbytes=None, batch_size=1)
    with Progress(run.verbose, "chains", job.n_chains, "chains") as progress:
        try:
            done = parallel(joblib.delayed(_work)(template, *call, job) for call in calls)
        except BaseException:
            _ENDED.add(job.name)
            raise
        progress(job.n_chains)
    template.ensemble, acceptance, findings = _together(template, job, done)
    template.warn_about_draws(job.n, template.ensemble.counters.n_transitions, acceptance)
    if store is None:
        parts: list[Any] = [part.draws for part in done]
        alike: Any = {"data_vars": "minimal", "coords": "minimal"}
        draws = xr.concat(parts, "chain", **alike, compat="override", join="override")
        draws = draws.assign_coords(chain=np.arange(job.n_chains))
    else:
        draws = open_draws(store).isel(draw=slice(0, job.n))
    template.warn_if_wrong(None if job.record or store is not None else draws, job.n)
    if job.n:
        template.algorithm.warn_of(findings)
    draws.attrs |= attrs | {"sampled_transitions": draws.sizes["draw"] * job.thin}
    return draws


def _burn_in_of(sampler: BaseSampler) -> int:
    """Return the transitions of the burn-in of new chains, by the present ``n_burn_in``."""
    run = sampler.run_.shallow_copy()
    params = run.algorithm.params
    if type(params) is type(sampler):
        params.n_burn_in = sampler.n_burn_in
    return run.algorithm.burn_in_length()


def _fitted_of(sampler: BaseSampler) -> dict[str, Any]:
    """Return what `fit` found, of the winner if there was a race; not the states of the burn-in."""
    owner = sampler.sampler_ if isinstance(sampler, AutoSampler) else sampler
    names = {*owner._found} - {"run_", "target_", "burn_in_"}
    return {name: value for name, value in vars(owner).items() if name in names}


def _template(run: Run, job: _Job) -> Run:
    """Return a run for workers: what is frozen, and one chain that does not move."""
    made = run.shallow_copy()
    made.forget()
    # Chains have streams of their own: what became of the sampler's is no part of the run.
    params = made.algorithm.params
    params.verbose, params.n_jobs, params.random_state = 0, 1, None
    if params.n_burn_in is not None:
        params.n_burn_in = None
    if not isinstance(run.algorithm.params.random_state, int | None):
        made.settings["random_state"] = type(run.algorithm.params.random_state).__name__
    made.settings |= {
        "n_jobs": "1",  # a store does not depend on the number of threads
        "verbose": "0",
        "n_chains": repr(job.n_chains),
        "n_burn_in": repr(job.n_burn_in),
    }
    target = run.target
    state = target.draw_state(np.random.default_rng(0)).astype(target.dtype)
    made.ensemble = run.ensemble.like(state[np.newaxis], Streams(spawn(job.seed, 1)))
    return made


def _divided(
    template: Run, job: _Job, n_jobs: int | None, folder: Path | None
) -> tuple[list[tuple[int, int]], list[Path | None]]:
    """Return the range of chains of each worker, and where it stores them."""
    n_parts = min(job.n_chains, max(1, joblib.effective_n_jobs(n_jobs)))
    ends: list[int] = np.linspace(0, job.n_chains, n_parts + 1).astype(int).tolist()
    if folder is None:
        return list(pairwise(ends)), [None] * n_parts
    needs_zarr()
    settings = {
        "n_chains": job.n_chains,
        "n_burn_in": job.n_burn_in,
        "thin": job.thin,
        "record": sorted(job.record),
        "seed": repr(job.seed),
        # Without the target, which workers check: rounding of log p differs between machines.
        "sampler": digest_of(template.packed()),
    }
    parts = Parts.begin(folder, settings, ends)
    changed = [name for name, value in settings.items() if parts.settings.get(name) != value]
    if changed:
        raise StoreError(
            f"{folder} is of another run: {', '.join(changed)} differ. Give the sampler and the "
            "arguments that it was begun with, or another path."
        )
    return list(pairwise(parts.ends)), [*parts.paths]


def _begun(template: Run, span: tuple[int, int], job: _Job) -> Run:
    """Return a run with some of the chains, after their burn-in."""
    made = template.shallow_copy()
    n, algorithm = span[1] - span[0], made.algorithm
    streams = Streams(spawn(job.seed, n, span[0]), span[0])
    starts = algorithm.more_starts(template.ensemble, streams)
    made.ensemble = ensemble = template.ensemble.like(starts.x, streams)
    ensemble.add_evaluations(starts.evaluations)
    with ensemble.threads():
        run_burn_in(ensemble, job.n_burn_in)
    algorithm.after_burn_in(ensemble)
    ensemble.counters = Counters(tally=made.new_tally(n, job.kept, job.n_chains))
    return made


def _work(template: Run, span: tuple[int, int], path: Path | None, job: _Job) -> _Done:
    """Burn in some chains and draw, or go on from a store."""
    again = path is not None and path.exists()
    if path and again:
        made = type(template.algorithm.params).resume(path, template.target).run_
    else:
        made = _begun(template, span, job)
    ensemble, counters = made.ensemble, made.ensemble.counters
    n = max(0, job.n - counters.n_draws)
    watch = _Watch((), ensemble, n, job.thin, 0)
    watch.name = job.name

    def sampler() -> bytes:
        holder: BaseSampler = copy.copy(made.algorithm.params)
        holder._put(made, job.fitted)
        return packed_sampler(holder)

    place = None if path is None else (path, sampler)
    observer = made.observer(job.record, place, made.attrs() | {"thin": job.thin})
    with deferred_interrupt() as interrupted:
        carry = made.draw(observer, watch, interrupted)
    return _Done(
        observer.result(carry) if path is None else None,
        ensemble.chains.x.copy(),
        # Which variables moved before is unknown.
        np.logical_or(ensemble.chains.moved.any(axis=0), again),
        int(ensemble.chains.evaluations.sum()),
        counters,
        watch.acceptance,
        watch.n_rated,
        made.algorithm.findings(ensemble),
    )


def _together(
    template: Run, job: _Job, done: list[_Done]
) -> tuple[Any, float | None, dict[str, NDArray[Any]]]:
    """Return, over all chains, what warnings look at: a stand-in for the ensemble, and more."""
    each = [part.counters for part in done]
    tallies = [counters.tally for counters in each if counters.tally is not None]
    same = len({tally.n_draws for tally in tallies}) == 1  # a store may have more
    fewest = min(each, key=lambda counters: counters.n_transitions)
    counters = replace(fewest, tally=Tally.joined(tallies) if same else None)
    chains = SimpleNamespace(
        x=np.concatenate([part.x for part in done]),
        moved=np.stack([part.moved for part in done]),
        evaluations=np.array([part.evaluations for part in done]),
    )
    rates = [part.acceptance for part in done if part.acceptance is not None]
    sizes = [part.n_rated for part in done if part.acceptance is not None]
    acceptance = float(np.average(rates, weights=sizes)) if rates else None
    findings = {k: np.concatenate([p.findings[k] for p in done]) for k in done[0].findings}
    whole = SimpleNamespace(rule=template.ensemble.rule, counters=counters, chains=chains)
    return whole, acceptance, findings
