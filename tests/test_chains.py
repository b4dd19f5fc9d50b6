"""What sample returns: labelled draws, statistics, thinning, and what ArviZ makes of them."""

import gc
import importlib.util
import pickle
import sys
import weakref
from types import SimpleNamespace

import numpy as np
import pytest
import scipy.sparse as sp
import xarray as xr

from sklsb import GibbsSampler, Ising, LSBSampler, MarkovNetwork, __version__, anneal, exact
from sklsb.diagnostics.draws import draws_dataset, stats_dataset, to_dimod
from sklsb.exceptions import ShortRunWarning

pytestmark = [
    pytest.mark.filterwarnings("ignore::sklsb.exceptions.FrozenSitesWarning"),
    pytest.mark.filterwarnings("ignore::sklsb.exceptions.ShortRunWarning"),
    pytest.mark.filterwarnings("ignore::sklsb.exceptions.SeparatedModesWarning"),
]


@pytest.fixture(scope="module")
def grid():
    field = np.random.default_rng(0).normal(scale=0.5, size=(3, 4))
    return Ising.lattice(field, coupling=0.2)


@pytest.fixture(scope="module")
def graph():
    couplings = np.zeros((5, 5))
    couplings[0, 1] = couplings[1, 0] = 0.5
    couplings[3, 3] = 1.25
    return Ising(couplings, field=[0.1, -0.2, 0.3, 0.0, 0.1])


def fitted(target, balancing="sqrt", **params):
    params = {"n_chains": 2, "n_burn_in": 60, "random_state": 0} | params
    return LSBSampler(balancing, **params).fit(target)


# ----------------------------------------------------------------- labels


def test_draws_of_a_lattice(grid):
    draws = fitted(grid).sample(50)
    assert isinstance(draws, xr.Dataset)
    assert list(draws.data_vars) == ["x"]
    assert draws["x"].dims == ("chain", "draw", "row", "col")
    assert dict(draws.sizes) == {"chain": 2, "draw": 50, "row": 3, "col": 4}
    assert draws["x"].dtype == np.int8
    assert set(np.unique(draws["x"])) == {-1, 1}
    assert set(draws.coords) == {*draws.dims, "lp"}
    for name, size in draws.sizes.items():
        np.testing.assert_array_equal(draws.coords[name], np.arange(size))
    plain = np.asarray(draws["x"])
    assert plain.shape == (2, 50, 3, 4)
    assert plain.flags.c_contiguous


def test_draws_of_a_graph(graph):
    draws = fitted(graph).sample(50)
    assert draws["x"].dims == ("chain", "draw", "site")
    assert set(draws.coords) == {"chain", "draw", "site", "lp"}
    assert "variable" not in draws.dims


@pytest.mark.parametrize("which", ["grid", "graph"])
def test_sample_stats(request, which):
    target = request.getfixturevalue(which)
    sampler = fitted(target, "learned")
    draws = sampler.sample(200, thin=3)
    stats = sampler.sample_stats_
    assert set(stats.data_vars) == {"lp", "acceptance_rate"}
    for variable in stats.data_vars.values():
        assert variable.dims == ("chain", "draw")
        assert variable.dtype == np.float64
        assert variable.shape == (2, 200)
    np.testing.assert_array_equal(stats["draw"], draws["draw"])
    np.testing.assert_allclose(stats["lp"], target.log_prob(draws["x"].values), atol=1e-12)
    rate = stats["acceptance_rate"].values
    assert ((rate >= 0) & (rate <= 1)).all()


def test_acceptance_rate_is_the_mean_probability_of_accepting(graph):
    # Enumerated by hand: Q from log g(l) = l/2, acceptance Z(x) / Z(x').
    sampler = fitted(graph, n_burn_in=0)
    start = sampler.state_
    sampler.sample(1)

    def total(x):
        return np.exp(graph.log_ratios(x) / 2).sum()

    after = sampler.state_
    for c in range(2):
        if (after[c] != start[c]).any():
            wanted = {min(1.0, total(start[c]) / total(after[c]))}
        else:
            moves = [start[c] * np.where(np.arange(5) == i, -1, 1) for i in range(5)]
            wanted = {min(1.0, total(start[c]) / total(x)) for x in moves}
        rate = float(sampler.sample_stats_["acceptance_rate"][c, 0])
        assert min(abs(rate - w) for w in wanted) < 1e-12


def test_settings_are_stored_with_the_draws(grid):
    sampler = fitted(grid, "min", lazy=0.25)
    draws = sampler.sample(10, thin=4)
    for attrs in (draws.attrs, sampler.sample_stats_.attrs):
        assert attrs["inference_library"] == "sklsb"
        assert attrs["inference_library_version"] == __version__
        assert attrs["sampler"] == "LSBSampler"
        assert attrs["target"] == repr(grid)
        assert attrs["thin"] == 4
        assert attrs["sampled_transitions"] == 40
        assert attrs["balancing"] == "'min'"
        assert attrs["lazy"] == "0.25"
        assert set(sampler.get_params()) <= set(attrs)
        # What netCDF and zarr can store.
        assert all(isinstance(value, str | int | float) for value in attrs.values())


def test_draws_can_be_written_and_read(grid, tmp_path):
    sampler = fitted(grid)
    draws = sampler.sample(20)
    path = tmp_path / "draws.nc"
    draws.to_netcdf(path, engine="scipy")
    with xr.open_dataset(path, engine="scipy") as again:
        np.testing.assert_array_equal(again["x"], draws["x"])
        assert again.attrs["balancing"] == draws.attrs["balancing"]


def test_answers_can_be_written_and_read(tmp_path):
    target = Ising.lattice(np.full((3, 3), 0.1), 0.2)
    sampler = GibbsSampler("random", n_chains=2, random_state=0).fit(target)
    found = {
        "draws": sampler.sample(5),
        "marginals": sampler.sample(5, record="marginals"),
        "history": sampler.history_,
        "anneal": anneal(target, n_sweeps=2, random_state=0),
        "exact": exact.marginals(target),
        "best": exact.most_likely(target),
        "sample": exact.sample(target, 3, random_state=0),
    }
    for name, written in found.items():
        assert all(type(value) in (str, int, float) for value in written.attrs.values()), name
        written.to_netcdf(tmp_path / f"{name}.nc", engine="scipy")
        with xr.open_dataset(tmp_path / f"{name}.nc", engine="scipy") as again:
            xr.testing.assert_equal(again, written)
            assert again.attrs == written.attrs


def test_draws_are_not_views_of_the_chains(grid):
    sampler, wanted = fitted(grid), fitted(grid)
    first = sampler.sample(30)
    wanted.sample(30)
    kept = first["x"].values.copy()
    second = sampler.sample(30)
    np.testing.assert_array_equal(first["x"], kept)
    second["x"].values[:] = 0
    np.testing.assert_array_equal(
        sampler.state_, wanted.sample(30)["x"][:, -1].values.reshape(2, 12)
    )


def test_no_draws(grid):
    sampler, wanted = fitted(grid), fitted(grid)
    draws = sampler.sample(0)
    assert draws["x"].shape == (2, 0, 3, 4)
    assert draws["x"].dtype == np.int8
    assert sampler.sample_stats_["lp"].shape == (2, 0)
    record = {"m": lambda x: x.sum(axis=1), "one": lambda x: x.mean(axis=(1, 2)) > 0}
    nothing, some = sampler.sample(0, record=record), wanted.sample(0, record=record)
    assert nothing["m"].shape == (2, 0, 4)
    assert nothing["one"].shape == (2, 0)
    assert nothing["one"].dtype == bool
    assert xr.concat([nothing, some], "draw")["m"].dtype == np.int64
    np.testing.assert_array_equal(sampler.sample(20)["x"], wanted.sample(20)["x"])


@pytest.mark.parametrize("n_sites", [0, 1])
def test_smallest_targets(n_sites):
    sampler = fitted(Ising(np.zeros((n_sites, n_sites)), 0.3), "learned", n_chains=3)
    draws = sampler.sample(25, thin="sweep")
    assert draws["x"].shape == (3, 25, n_sites)
    assert sampler.sample_stats_["lp"].shape == (3, 25)
    assert np.isfinite(sampler.sample_stats_["lp"]).all()


# ----------------------------------------------------------------- thinning


@pytest.mark.parametrize("thin", [2, 3, 7, 100])
def test_thinned_draws_are_every_kth_transition(grid, monkeypatch, thin):
    whole = fitted(grid)
    every = whole.sample(400)["x"].values
    rate = whole.sample_stats_["acceptance_rate"].values
    n = 400 // thin
    for segment in (1 << 16, 37):
        monkeypatch.setattr("sklsb.ensembles.base.MOST_NUMBERS", 2 * segment)
        sampler = fitted(grid)
        draws = sampler.sample(n, thin=thin)
        np.testing.assert_array_equal(draws["x"], every[:, thin - 1 :: thin][:, :n])
        wanted = rate[:, : n * thin].reshape(2, n, thin).mean(axis=2)
        np.testing.assert_allclose(sampler.sample_stats_["acceptance_rate"], wanted, atol=1e-14)


def test_a_sweep_is_one_transition_per_site(grid):
    np.testing.assert_array_equal(
        fitted(grid).sample(30, thin="sweep")["x"], fitted(grid).sample(30, thin=12)["x"]
    )


def test_thin_may_be_a_numpy_integer(grid):
    draws = fitted(grid).sample(np.int64(5), thin=np.int32(2))
    assert draws.sizes["draw"] == 5
    assert draws.attrs["thin"] == 2


# ----------------------------------------------------------------- record


STATISTICS = {
    "total": lambda x: x.sum(axis=(1, 2), dtype=np.int64),
    "pair": lambda x: np.stack([x[:, 0, 0] * 0.5, x[:, 0, 1] == 1], axis=1),
    "picture": lambda x: x[:, ::2].astype(np.float32),
}


@pytest.mark.parametrize("segment", [1 << 16, 64, 13])
@pytest.mark.parametrize("thin", [1, 5])
def test_record_is_the_statistic_of_the_draws(grid, monkeypatch, segment, thin):
    states = fitted(grid).sample(150, thin=thin)["x"].values.reshape(300, 3, 4)
    monkeypatch.setattr("sklsb.ensembles.base.MOST_NUMBERS", 2 * segment)
    recorded = fitted(grid).sample(150, thin=thin, record=STATISTICS)
    assert set(recorded.data_vars) == set(STATISTICS)
    for name, statistic in STATISTICS.items():
        wanted = statistic(states)
        got = recorded[name].values
        assert got.dtype == wanted.dtype
        np.testing.assert_array_equal(got, wanted.reshape(2, 150, *wanted.shape[1:]))
    assert recorded["total"].dims == ("chain", "draw")
    assert recorded["pair"].dims == ("chain", "draw", "pair_dim_0")
    assert recorded["picture"].dims == ("chain", "draw", "picture_dim_0", "picture_dim_1")
    assert set(recorded.coords) == set(recorded.dims)
    assert recorded.attrs["thin"] == thin


def test_recording_changes_nothing(grid):
    sampler, wanted = fitted(grid), fitted(grid)
    sampler.sample(40, record={"m": lambda x: x.sum(axis=1)})
    wanted.sample(40)
    xr.testing.assert_identical(
        sampler.sample_stats_.drop_attrs(), wanted.sample_stats_.drop_attrs()
    )
    np.testing.assert_array_equal(sampler.sample(40)["x"], wanted.sample(40)["x"])


def test_a_statistic_may_write_into_its_argument(grid):
    def spoil(x):
        total = x.sum(axis=1)
        x[:] = 0
        return total

    sampler, wanted = fitted(grid), fitted(grid)
    sampler.sample(40, record={"m": spoil})
    wanted.sample(40)
    np.testing.assert_array_equal(sampler.sample(40)["x"], wanted.sample(40)["x"])


def test_a_statistic_never_sees_nothing(grid, monkeypatch):
    monkeypatch.setattr("sklsb.ensembles.base.MOST_NUMBERS", 2 * 10)
    seen = []

    def statistic(x):
        seen.append(x.shape)
        return x.reshape(len(x), -1).max(axis=1)

    recorded = fitted(grid).sample(8, thin=25, record={"m": statistic})
    assert recorded["m"].shape == (2, 8)
    assert all(n > 0 and shape == [3, 4] for n, *shape in seen)
    assert sum(n for n, *_ in seen) == 2 * 8


def test_record_holds_few_states_at_a_time(monkeypatch):
    # The point of record: however many draws and sites, and however slow the machine.
    monkeypatch.setattr("sklsb.ensembles.base._SEGMENT_SECONDS", 1e9)
    target = Ising(sp.csr_array((10_000, 10_000)), 0.5)
    sampler = fitted(target, n_chains=1, n_burn_in=5)
    largest = []

    def statistic(x):
        largest.append(x.nbytes)
        return x[:, 0]

    assert sampler.sample(12_000, record={"m": statistic})["m"].shape == (1, 12_000)
    assert 2**20 < max(largest) <= 32 * 2**20


# ----------------------------------------------------------------- containers


def test_datatree(grid):
    sampler = fitted(grid, "learned", keep_burn_in=True)
    draws = sampler.sample(30)
    tree = sampler.to_datatree()
    assert isinstance(tree, xr.DataTree)
    assert set(tree.children) >= {"posterior", "sample_stats", "warmup_posterior"}
    xr.testing.assert_equal(tree["posterior"].to_dataset(), draws)
    xr.testing.assert_equal(tree["sample_stats"].to_dataset(), sampler.sample_stats_)
    xr.testing.assert_equal(tree["warmup_posterior"].to_dataset(), sampler.burn_in_)
    assert tree.attrs["inference_library"] == "sklsb"
    assert tree.attrs["balancing"] == "'learned'"
    plain, drawn = fitted_and_drawn(grid)
    assert "warmup_posterior" not in plain.to_datatree(drawn).children


@pytest.mark.parametrize("settings", [{}, {"record": {"m": np.array}}, {"record": "moments"}])
def test_draws_are_freed_when_the_user_lets_go_of_them(grid, settings):
    gc.freeze()  # of all that other tests have left nothing is looked at
    sampler = fitted(grid)
    draws = sampler.sample(30, **settings)
    assert set(sampler.to_datatree().children) == {"posterior", "sample_stats"}
    alive = [weakref.ref(draws), *(weakref.ref(v.values) for v in draws.variables.values())]
    del draws
    gc.collect()
    gc.unfreeze()
    # Coordinates are shared with sample_stats_, which stay.
    kept = {id(v.values) for v in sampler.sample_stats_.variables.values()}
    assert not [ref() for ref in alive if ref() is not None and id(ref()) not in kept]
    for export in (sampler.to_datatree, sampler.to_inference_data, sampler.to_dimod):
        with pytest.raises(ValueError, match=r"draws .* are gone.*Keep what sample returned, or"):
            export()


def test_containers_of_given_draws(grid):
    sampler = fitted(grid, keep_burn_in=True)
    draws, later = sampler.sample(30), sampler.sample(20)
    xr.testing.assert_identical(sampler.to_datatree(later), sampler.to_datatree())
    tree = sampler.to_datatree(draws)
    xr.testing.assert_identical(tree["posterior"].to_dataset(), draws)
    stats = tree["sample_stats"].to_dataset()
    assert list(stats) == ["lp"]
    np.testing.assert_array_equal(stats["lp"], draws["lp"])
    assert tree["warmup_posterior"].to_dataset().equals(sampler.burn_in_)
    assert tree.attrs == sampler.to_datatree().attrs
    copied = pickle.loads(pickle.dumps(sampler))
    assert copied.to_datatree(draws).identical(tree)
    sampler.fit(grid)
    assert sampler.to_datatree(draws)["posterior"].to_dataset().identical(draws)
    for export in (sampler.to_datatree, sampler.to_inference_data, sampler.to_dimod):
        with pytest.raises(TypeError, match=r"draws is 2.0; give the Dataset that sample returned"):
            export(2.0)


def fitted_and_drawn(target, **params):
    sampler = fitted(target, **params)
    return sampler, sampler.sample(20)


def test_inference_data(grid):
    arviz = pytest.importorskip("arviz", reason="needs ArviZ")
    sampler = fitted(grid, keep_burn_in=True)
    draws = sampler.sample(30)
    with pytest.warns(ShortRunWarning, match="30 draws of each chain: too few to trust .* 64 or"):
        data = sampler.to_inference_data()
    np.testing.assert_array_equal(data["posterior"]["x"], draws["x"])
    np.testing.assert_array_equal(data["sample_stats"]["lp"], sampler.sample_stats_["lp"])
    np.testing.assert_array_equal(data["warmup_posterior"]["x"], sampler.burn_in_["x"])
    assert data.attrs["inference_library"] == "sklsb"
    if arviz.__version__.startswith("0."):
        assert isinstance(data, arviz.InferenceData)
    else:
        assert isinstance(data, xr.DataTree)
    assert arviz.ess(data)["x"].sizes == {"row": 3, "col": 4}


def test_containers_follow_the_last_call(grid):
    sampler, _ = fitted_and_drawn(grid)
    last = sampler.sample(7, record={"m": lambda x: x.sum(axis=1)})
    posterior = sampler.to_datatree()["posterior"].to_dataset()
    assert posterior.identical(last)
    assert list(posterior.data_vars) == ["m"]
    assert posterior.sizes["draw"] == 7
    sampler.fit(grid)
    with pytest.raises(ValueError, match=r"no draws .*; call sample first"):
        sampler.to_datatree()


def test_draws_go_on_counting(grid):
    sampler = fitted(grid)
    record = {"m": lambda x: x.mean(axis=(1, 2))}
    parts = [sampler.sample(5, thin=2), sampler.sample(0), sampler.sample(3)]
    assert sampler.sample_stats_["draw"].values.tolist() == [5, 6, 7]
    copied = pickle.loads(pickle.dumps(sampler))
    assert copied.sample(2)["draw"].values.tolist() == [8, 9]
    assert sampler.sample(2, record=record)["draw"].values.tolist() == [8, 9]
    joined = xr.concat(parts, "draw")
    assert joined["draw"].values.tolist() == list(range(8))
    assert joined["x"].shape == (2, 8, 3, 4)
    assert joined["lp"].shape == (2, 8)
    assert sampler.fit(grid).sample(2)["draw"].values.tolist() == [0, 1]


@pytest.mark.parametrize("without", [False, True])
def test_to_dimod(grid, graph, monkeypatch, without):
    if without:
        monkeypatch.setitem(sys.modules, "dimod", None)
        with pytest.raises(ImportError, match="to_dimod needs dimod; run `pip install dimod`"):
            fitted(grid).to_dimod(draws_dataset(np.ones((1, 1, 12), np.int8), grid))
        return
    dimod = pytest.importorskip("dimod", reason="dimod is optional")
    for target in (grid, graph):
        sampler = fitted(target)
        draws = sampler.sample(9)
        found = sampler.to_dimod(beta=2.0)
        assert found.vartype is dimod.SPIN
        assert list(found.variables) == list(range(target.n_sites))
        np.testing.assert_array_equal(found.record.sample, draws["x"].values.reshape(18, -1))
        assert found.record.chain.tolist() == [0] * 9 + [1] * 9
        assert found.record.draw.tolist() == [*range(9)] * 2
        energies = target.to_bqm(beta=2.0).energies(found)
        np.testing.assert_allclose(found.record.energy, energies, atol=1e-12)
    statistics = sampler.sample(2, record={"m": lambda x: x.sum(axis=1)})
    with pytest.raises(ValueError, match=r"no states among \['m'\]; call sample without record"):
        sampler.to_dimod(statistics)
    bits = Ising.from_bqm(
        SimpleNamespace(linear={"b": 1.0, 3: 0.0}, quadratic={}, offset=0.0, vartype="SPIN")
    )
    sampler, draws = fitted_and_drawn(bits)
    assert set(sampler.to_dimod(draws).variables) == {"b", 3}
    states = np.zeros((1, 2, 2), np.int8)
    for k, vartype in ((2, "BINARY"), (3, "INTEGER")):
        target = MarkovNetwork([k, k], [], names=["u", "v"])
        draws = draws_dataset(states, target).assign_coords(lp=(("chain", "draw"), [[0.0, 0.0]]))
        found = to_dimod(draws, target)
        assert found.vartype.name == vartype
        assert list(found.variables) == ["u", "v"]


def test_helpers_label_what_they_are_given(grid):
    states = np.ones((2, 3, 12), dtype=np.int8)
    assert draws_dataset(states, grid, {"a": 1}).attrs == {"a": 1}
    assert draws_dataset(states, grid)["x"].shape == (2, 3, 3, 4)
    stats = stats_dataset({"a": np.zeros((2, 3)), "b": np.zeros((2, 3, 5))})
    assert stats["b"].dims == ("chain", "draw", "b_dim_0")
    assert set(stats.coords) == {"chain", "draw", "b_dim_0"}


# ----------------------------------------------------------------- ArviZ


@pytest.fixture(scope="module")
def arviz():
    return pytest.importorskip("arviz", reason="needs ArviZ")


@pytest.fixture(scope="module")
def long_draws(grid):
    return fitted(grid, "learned", n_chains=4, n_burn_in=None).sample(600, thin="sweep")


@pytest.fixture
def pyplot():
    pytest.importorskip("matplotlib", reason="plots need matplotlib").use("Agg")
    import matplotlib.pyplot as plt

    yield plt
    plt.close("all")


def test_arviz_ess_and_rhat(arviz, long_draws):
    ess, rhat = arviz.ess(long_draws), arviz.rhat(long_draws)
    for result in (ess, rhat):
        assert result["x"].dims == ("row", "col")
        assert np.isfinite(result["x"]).all()
    # 2,400 draws a sweep apart on a weakly coupled lattice are nearly independent.
    assert ess["x"].min() > 600
    assert ess["x"].max() < 2400 * 4
    assert rhat["x"].max() < 1.02


def test_arviz_summary(arviz, long_draws):
    table = arviz.summary(long_draws)
    assert len(table) == 12
    assert "x[0, 0]" in table.index
    mean = table.loc["x[2, 3]", "mean"]
    assert float(mean) == pytest.approx(float(long_draws["x"][:, :, 2, 3].mean()), abs=0.06)


def test_arviz_on_sample_stats(arviz, grid):
    sampler = fitted(grid)
    sampler.sample(400, thin=5)
    assert np.isfinite(arviz.ess(sampler.sample_stats_)["lp"])


@pytest.mark.parametrize("name", ["plot_trace", "plot_autocorr"])
@pytest.mark.parametrize("which", ["grid", "graph", "record"])
def test_arviz_plots(arviz, pyplot, request, name, which):
    if which == "record":
        target, record = request.getfixturevalue("grid"), {"total": lambda x: x.sum(axis=1)}
    else:
        target, record = request.getfixturevalue(which), None
    draws = fitted(target).sample(60, record=record)
    if which == "grid":
        draws = draws.isel(row=[0, 1], col=[0])
    arviz_plot = getattr(arviz, name)
    assert arviz_plot(draws) is not None
    figures = [pyplot.figure(n) for n in pyplot.get_fignums()]
    assert figures
    for figure in figures:
        figure.canvas.draw()


def test_arviz_plots_come_from_the_installed_version(arviz):
    # 0.23 has its own; 1.x takes them from arviz_plots.
    modern = importlib.util.find_spec("arviz_plots") is not None
    assert arviz.plot_trace.__module__.startswith("arviz_plots" if modern else "arviz.")
