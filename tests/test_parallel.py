"""Many chains on several workers: the same draws, bit for bit, wherever they are made."""

import warnings

import joblib
import numpy as np
import pytest
from models import chain_network, content, dense
from sklearn.exceptions import NotFittedError
from test_state import Moves

import sklsb
from sklsb import (
    AutoSampler,
    EliminationSampler,
    FunctionTarget,
    GibbsSampler,
    Ising,
    LSBSampler,
    MarkovNetwork,
    ParallelTempering,
    SwapSampler,
    diagnostics,
    sample_chains,
)
from sklsb.diagnostics.tally import Tally
from sklsb.ensembles.streams import Streams, spawn
from sklsb.exceptions import (
    FrozenSitesWarning,
    SeparatedModesWarning,
    ShortRunWarning,
    StoreError,
    TemperingWarning,
)

pytestmark = pytest.mark.filterwarnings("ignore::sklsb.exceptions.SamplerWarning")

TARGET = dense(6, scale=0.4)
NETWORK = chain_network()
RANKING = MarkovNetwork([5] * 5, [((i, j), 1.0 - np.eye(5)) for i in range(5) for j in range(i)])


def total(x):
    return x.sum(axis=-1) * 0.1


def mean(x):
    return x.mean(axis=tuple(range(1, x.ndim)))


SAMPLERS = {
    "random": (GibbsSampler(block_size=2), TARGET),
    "learned": (LSBSampler(init="both"), TARGET),
    "swap": (SwapSampler(), RANKING),
    "nested": (Moves("nested"), TARGET),
    "whole": (LSBSampler("sqrt", blocks=10), NETWORK),
    "pool": (LSBSampler("sqrt", blocks=2), NETWORK),
    "elimination": (EliminationSampler(), NETWORK),
    "tempering": (ParallelTempering(n_replicas=3), TARGET),
    "auto": (AutoSampler(), FunctionTarget(total, 5)),
    "function": (LSBSampler("sqrt", init="quenched"), FunctionTarget(total, 5)),
}
_FITTED = {}


def fitted(name):
    sampler, target = SAMPLERS[name]
    if name not in _FITTED:
        params = {"n_chains": 2, "n_burn_in": 200, "random_state": 1}
        params = {k: v for k, v in params.items() if k in sampler.get_params()}
        _FITTED[name] = sampler.set_params(**params).fit(target)
    return _FITTED[name]


def same(one, other):
    assert one.identical(other)
    for name in one.variables:
        assert one[name].values.tobytes() == other[name].values.tobytes(), name


@pytest.mark.parametrize("name", SAMPLERS)
def test_however_they_are_divided(name):
    sampler = fitted(name)
    before = sampler.run_.packed_chains()
    whole = sample_chains(sampler, 20, n_chains=7, thin=2)
    assert whole["x"].shape[:2] == (7, 20)
    np.testing.assert_allclose(whole["lp"], sampler.target_.log_prob(whole["x"].values), rtol=1e-12)
    assert len(np.unique(whole["x"].values.reshape(7, -1), axis=0)) == 7
    with joblib.parallel_config(backend="threading"):
        for n_jobs in (2, 7):
            same(sample_chains(sampler, 20, n_chains=7, thin=2, n_jobs=n_jobs), whole)
    assert sampler.run_.packed_chains() == before
    # Others, and the first of more.
    same_seed = sample_chains(sampler, 20, n_chains=3, thin=2, random_state=5)
    assert not same_seed["x"].equals(whole["x"][:3])
    few = sample_chains(sampler, 20, n_chains=3, thin=2)
    assert few["x"].values.tobytes() == whole["x"][:3].values.tobytes()


LATER = {
    "random": {"block_size": 1, "init": "uniform", "n_chains": 9},
    "learned": {
        **{"balancing": "max", "init": "uniform", "lazy": 0.9, "fast": True, "warm_start": True},
        **{"learning_rate": 9.0, "objective": "bound", "blocks": None},
    },
    "swap": {"init": "quenched", "n_partners": 1, "balancing": "max"},
    "tempering": {
        "explorer": GibbsSampler("random"),
        "init": "uniform",
        "n_replicas": 7,
        "eliminate": 3,
    },
    "function": {"init": "uniform", "rejection_free": False, "factors": None},
}


@pytest.mark.parametrize("name", LATER)
def test_parameters_set_after_fit_wait_for_the_next_one(name):
    sampler = fitted(name)
    wanted, given = sample_chains(sampler, 20, n_chains=4), sampler.get_params(deep=False)
    sampler.set_params(**LATER[name])
    try:
        same(sample_chains(sampler, 20, n_chains=4), wanted)
    finally:
        sampler.set_params(**given)


def test_a_function_that_is_changed_after_fit_stays_as_it_was():
    bounded = sklsb.Lipschitz(0.5)
    sampler = LSBSampler(bounded, pilot=False, n_burn_in=300, random_state=0).fit(TARGET)
    wanted = sample_chains(sampler, 20, n_chains=4)
    sampler.set_params(balancing__bound=5.0)
    assert bounded.bound == 5.0
    same(sample_chains(sampler, 20, n_chains=4), wanted)


def test_chains_of_the_same_seed_are_others():
    """0 everywhere gives different chains, so that they can be joined."""
    sampler = GibbsSampler("random", n_chains=2, n_burn_in=30, random_state=0).fit(TARGET)
    own = sampler.sample(40)["x"].values
    new = sample_chains(sampler, 40, n_chains=2, random_state=0)["x"].values
    assert (own != new).any(axis=(1, 2)).all()


def test_in_processes():
    sampler = fitted("function")
    expected = sample_chains(sampler, 20, n_chains=5, thin=2)
    with joblib.parallel_config(backend="loky", n_jobs=2):
        same(sample_chains(sampler, 20, n_chains=5, thin=2), expected)


# Processes import all again. Those of joblib are in the commit tier, above.
@pytest.mark.parametrize("processes", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_on_a_cluster(tmp_path, processes):
    pytest.importorskip("zarr")
    distributed = pytest.importorskip("distributed", reason="needs the extra 'distributed'")
    sampler = fitted("function")
    expected = sample_chains(sampler, 20, n_chains=5, thin=2)
    cluster = distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, processes=processes, dashboard_address=None
    )
    with cluster, distributed.Client(cluster), joblib.parallel_config(backend="dask"):
        same(sample_chains(sampler, 20, n_chains=5, thin=2), expected)
        stored = sample_chains(sampler, 20, n_chains=5, thin=2, store=tmp_path / "runs")
    assert len(list((tmp_path / "runs").glob("*.zarr"))) == 2
    same(stored[["x"]].load().drop_attrs(), expected[["x"]].drop_attrs())


def test_stores_of_workers(tmp_path, monkeypatch):
    pytest.importorskip("zarr")
    monkeypatch.setattr(sklsb.storage.stores, "CHUNK_DRAWS", 7)
    sampler, path = fitted("learned"), tmp_path / "runs"
    whole = sample_chains(sampler, 30, n_chains=5, thin=2)
    with joblib.parallel_config(backend="threading"):
        first = sample_chains(sampler, 11, n_chains=5, thin=2, store=path, n_jobs=2)
        same(first.load()[["x"]].drop_attrs(), whole.isel(draw=slice(0, 11))[["x"]].drop_attrs())
        # Chains of the sampler that moved meanwhile change nothing; nor do other workers.
        sampler.sample(3)
        more = sample_chains(sampler, 30, n_chains=5, thin=2, store=path, n_jobs=5)
    assert {part.name for part in path.iterdir()} == {"chains", "0-1.zarr", "2-4.zarr"}
    same(more[["x"]].load().drop_attrs(), whole[["x"]].drop_attrs())
    assert more.attrs == whole.attrs | {"requested_draws": 30}
    found = sklsb.open_draws(path)
    for key in ({"chain": 3}, {"chain": [4, 0]}, {"chain": slice(None, None, -2)}, {"draw": 29}):
        assert found["x"].isel(key).identical(whole["x"].assign_coords(lp=found["lp"]).isel(key))
    assert found["x"][[], 3].shape == (0, 6)
    few = sample_chains(sampler, 5, n_chains=5, thin=2, store=path)
    assert few.sizes["draw"] == 5
    with pytest.raises(StoreError, match=r"is of another run: thin differ\. Give the sampler and"):
        sample_chains(sampler, 30, n_chains=5, thin=3, store=path)
    with pytest.raises(StoreError, match="another run: n_chains, sampler differ"):
        sample_chains(fitted("random"), 30, n_chains=6, thin=2, n_burn_in=200, store=path)
    with pytest.raises(StoreError, match="cannot be used: it exists, but sample_chains did not"):
        sample_chains(sampler, 30, n_chains=5, store=tmp_path)
    (path / "2-4.zarr").rename(path / "other")
    with pytest.raises(StoreError, match=r"no draws of all chains yet: 2-4\.zarr is not there"):
        sklsb.open_draws(path)
    (path / "chains").write_bytes((path / "chains").read_bytes()[:-1])
    with pytest.raises(StoreError, match="is damaged"):
        sklsb.open_draws(path)


@pytest.mark.parametrize(
    ("name", "attributes"),
    [
        ("learned", ["balancing_", "candidates_", "history_"]),
        ("elimination", ["log_z_", "cost_", "marginals_"]),
        ("tempering", ["betas_"]),
        ("auto", ["history_"]),
    ],
)
def test_samplers_of_stores_have_what_fit_found(name, attributes, tmp_path):
    pytest.importorskip("zarr")
    sampler, path = fitted(name), tmp_path / "runs"
    sample_chains(sampler, 5, n_chains=2, store=path, n_jobs=2, n_burn_in=10)
    owner = sampler.sampler_ if name == "auto" else sampler
    for part in sorted(path.glob("*.zarr")):
        found = type(owner).resume(part, sampler.target_)
        for attribute in attributes:
            wanted = str(getattr(owner, attribute)).replace("xarray.Candidates", "xarray.Dataset")
            assert str(getattr(found, attribute)) == wanted, attribute  # without the view in HTML
        assert found.sample(1, store=part).sizes["draw"] == 1


def test_statistics():
    sampler = fitted("random")
    whole = sample_chains(sampler, 20, n_chains=3)
    found = sample_chains(sampler, 20, n_chains=3, record={"m": mean}, n_jobs=1)
    np.testing.assert_array_equal(found["m"], whole["x"].mean(whole["x"].dims[2:]))


def test_starts_are_those_of_the_whole():
    """Every second chain is quenched, and every second of these in another way."""
    sampler = LSBSampler("sqrt", n_burn_in=2000, random_state=0, n_chains=2).fit(TARGET)
    algorithm = sampler.run_.algorithm
    whole = algorithm.make_starts(Streams(spawn(3, 8)))
    parts = [
        algorithm.make_starts(Streams(spawn(3, b - a, a), a)) for a, b in ((0, 1), (1, 4), (4, 8))
    ]
    assert np.array_equal(whole.x, np.concatenate([part.x for part in parts]))
    assert np.array_equal(whole.evaluations, np.concatenate([part.evaluations for part in parts]))


def test_a_tally_of_all_chains():
    rng = np.random.default_rng(0)
    x = rng.choice([-1, 1], size=(5, 700, 6)).astype(np.int8)
    lp = rng.normal(size=(5, 700))
    whole = Tally(TARGET, 5, 2)
    whole.add(x, lp, 1)
    parts = [Tally(TARGET, 2, 2, n_all=5), Tally(TARGET, 3, 2, n_all=5)]
    for part, chains in zip(parts, (slice(0, 2), slice(2, 5)), strict=True):
        part.add(x[chains], lp[chains], 1)
    assert content(Tally.joined(parts)) == content(whole)


def test_warnings_are_of_all_chains():
    """Two modes that no chain leaves: told only by chains of different workers."""
    d = 12
    couplings = np.full((d, d), 1.0)
    np.fill_diagonal(couplings, 0.0)
    sampler = LSBSampler("sqrt", n_chains=2, n_burn_in=100, init="uniform", blocks=None)
    sampler = sampler.set_params(random_state=0).fit(Ising(couplings))
    with (
        joblib.parallel_config(backend="threading", n_jobs=6),
        pytest.warns(SeparatedModesWarning, match="The chains disagree") as told,
    ):
        draws = sample_chains(sampler, 200, n_chains=6, thin="sweep")
    assert [w.filename for w in told if w.category is SeparatedModesWarning] == [__file__]
    assert diagnostics.disagreement(draws, sampler.target_).agree == 0
    with pytest.warns(FrozenSitesWarning, match="never changed in this call"):
        sample_chains(sampler, 4, n_chains=2)
    large = GibbsSampler("random", n_chains=2, random_state=0)
    large.fit(Ising(np.zeros((100, 100)), field=np.linspace(-0.5, 0.5, 100)))
    with pytest.warns(ShortRunWarning, match=r"too few to compare the chains") as told:
        sample_chains(large, 200, n_chains=2, n_burn_in=0)
    with pytest.warns(ShortRunWarning, match=r"too few to compare the chains") as own:
        large.sample(200)
    assert str(told[0].message) == str(own[0].message)
    with pytest.warns(TemperingWarning, match="round trips between beta = 0 and 1 in 20 scans"):
        sample_chains(fitted("tempering"), 10, n_chains=3, thin=2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        sample_chains(fitted("random"), 200, n_chains=3, thin="sweep")


def test_a_run_that_fails_ends_everywhere(monkeypatch):
    sampler = fitted("random")

    def record(x):
        if x[0, 0] > -9 and len(calls) > 3:
            raise RuntimeError("as it happens")
        calls.append(1)
        return x[:, 0]

    calls = []
    with (
        joblib.parallel_config(backend="threading", n_jobs=2),
        pytest.raises(RuntimeError, match="as it happens"),
    ):
        sample_chains(sampler, 10**9, n_chains=2, record={"m": record})


def test_what_is_refused(monkeypatch):
    sampler = fitted("random")
    with pytest.raises(TypeError, match="give a fitted sampler of sklsb"):
        sample_chains(TARGET, 10, n_chains=2)
    with pytest.raises(NotFittedError):
        sample_chains(GibbsSampler("random"), 10, n_chains=2)
    with pytest.raises(MemoryError, match=f"n_chains={2**50} with .* Give fewer chains"):
        sample_chains(sampler, 1, n_chains=2**50, record={"m": np.mean})
    with pytest.raises(ValueError, match=rf"n \* thin is {2**60}; it must be at most {2**53}"):
        sample_chains(sampler, 2**30, thin=2**30, n_chains=2, record={"m": np.mean})
    with pytest.raises(ValueError, match="n_chains is 0; it must be at least 1"):
        sample_chains(sampler, 10, n_chains=0)
    with pytest.raises(ValueError, match="record is 'moments', which one sampler keeps"):
        sample_chains(sampler, 10, n_chains=2, record="moments")
    monkeypatch.setattr(sklsb._system.memory, "available", lambda: 10_000_000)
    with pytest.raises(MemoryError, match="sample_chains with 1000000 draws of 9 chains of 6 var"):
        sample_chains(sampler, 10**6, n_chains=9)
