"""Targets: the Ising model against double loops written from its formula."""

import copy
import inspect
import itertools
import math
import pickle
import re
import warnings

import networkx as nx
import numpy as np
import pytest
import scipy.sparse as sp

from sklsb import (
    RBM,
    AutoSampler,
    EliminationSampler,
    FunctionTarget,
    GibbsSampler,
    Ising,
    LSBSampler,
    MarkovNetwork,
    ParallelTempering,
    Potts,
    Target,
    diagnostics,
    draw,
    exact,
    open_draws,
)
from sklsb.exceptions import ModelWarning, PrecisionWarning, SamplerWarning, TemperingWarning
from sklsb.targets._graphs import LARGEST_FIELD
from sklsb.testing import check_target


def all_states(n_sites):
    states = list(itertools.product((-1, 1), repeat=n_sites))
    return np.array(states, dtype=np.int8).reshape(-1, n_sites)


def literal_log_prob(couplings, field, x):
    """sum_i h_i x_i + sum_{i<j} J_ij x_i x_j + sum_i J_ii, term by term."""
    n = len(field)
    value = 0.0
    for i in range(n):
        value += float(field[i]) * int(x[i])
        value += float(couplings[i][i])
        for j in range(i + 1, n):
            value += float(couplings[i][j]) * int(x[i]) * int(x[j])
    return value


def literal_log_ratios(log_prob, x):
    """Difference of log p for each single flip, by flipping."""
    out = []
    for i in range(len(x)):
        other = np.array(x)
        other[i] = -other[i]
        out.append(log_prob(other) - log_prob(x))
    return np.array(out)


def literal_grid_log_prob(field, coupling, periodic, x):
    """Field, and every pair (site, right neighbour) and (site, neighbour below), one by one."""
    rows, cols = field.shape
    value = 0.0
    for r in range(rows):
        for c in range(cols):
            value += field[r, c] * x[r, c]
            if periodic or c + 1 < cols:
                value += coupling * x[r, c] * x[r, (c + 1) % cols]
            if periodic or r + 1 < rows:
                value += coupling * x[r, c] * x[(r + 1) % rows, c]
    return value


def random_couplings(n, seed, density=0.6, loops=True):
    rng = np.random.default_rng(seed)
    upper = np.triu(rng.normal(size=(n, n)) * (rng.random((n, n)) < density), 0 if loops else 1)
    return upper + np.triu(upper, 1).T


MAKE = {
    "dense": np.asarray,
    "list": lambda a: a.tolist(),
    "fortran": np.asfortranarray,
    "csr_array": sp.csr_array,
    "csc_array": sp.csc_array,
    "coo_array": sp.coo_array,
    "csr_matrix": sp.csr_matrix,
    "lil_array": sp.lil_array,
}


@pytest.mark.parametrize("make", MAKE.values(), ids=MAKE)
def test_log_prob_and_log_ratios_are_the_formula(make):
    for n, seed in ((1, 0), (2, 1), (5, 2), (6, 3)):
        couplings = random_couplings(n, seed)
        field = np.random.default_rng(seed + 100).normal(size=n)
        model = Ising(make(couplings), field)
        states = all_states(n)
        wanted = [literal_log_prob(couplings, field, x) for x in states]
        np.testing.assert_allclose(model.log_prob(states), wanted, rtol=0, atol=1e-13)
        for x in states:
            ratios = literal_log_ratios(lambda y: literal_log_prob(couplings, field, y), x)  # noqa: B023
            np.testing.assert_allclose(model.log_ratios(x), ratios, rtol=0, atol=1e-13)
        assert model.n_sites == n
        assert model.constant == pytest.approx(np.trace(couplings), abs=1e-15)
        assert np.all(model.couplings.diagonal() == 0)
        np.testing.assert_array_equal(model.cardinalities, np.full(n, 2))


@pytest.mark.parametrize(
    "dtype", [bool, np.int8, np.uint8, np.int64, np.uint64, np.float16, np.float32, np.float64]
)
def test_every_real_dtype_is_read_exactly(dtype):
    couplings = np.array([[0, 1, 0], [1, 0, 1], [0, 1, 1]], dtype=dtype)
    field = np.array([1, 0, 1], dtype=dtype)
    wanted = [literal_log_prob(couplings, field, x) for x in all_states(3)]
    inputs = [couplings]
    if dtype is not np.float16:  # scipy.sparse has no such arrays
        inputs += [sp.csr_array(couplings), sp.coo_array(couplings)]
    for given in inputs:
        np.testing.assert_array_equal(Ising(given, field).log_prob(all_states(3)), wanted)


def test_duplicate_entries_of_a_sparse_matrix_add_in_float64():
    # 100 + 100 does not fit in the int8 of the input.
    data = np.full(4, 100, dtype=np.int8)
    couplings = sp.coo_array((data, ([0, 0, 1, 1], [1, 1, 0, 0])), shape=(2, 2))
    assert Ising(couplings).log_prob([1, 1]) == 200.0
    wide = sp.coo_array((data.astype(float), ([0, 0, 1, 1], [1, 1, 0, 0])), shape=(2, 2))
    assert Ising(wide).log_prob([1, 1]) == 200.0


def test_explicit_zeros_are_no_couplings():
    couplings = sp.csr_array((np.zeros(2), np.array([1, 0]), np.array([0, 1, 2])), shape=(2, 2))
    assert Ising(couplings).couplings.nnz == 0


def test_field_may_be_a_number_or_left_out():
    couplings = random_couplings(4, 0)
    states = all_states(4)
    np.testing.assert_array_equal(
        Ising(couplings, 0.5).log_prob(states), Ising(couplings, np.full(4, 0.5)).log_prob(states)
    )
    np.testing.assert_array_equal(
        Ising(couplings).log_prob(states), Ising(couplings, np.zeros(4)).log_prob(states)
    )


# ----------------------------------------------------------------- graphs


def literal_graph_log_prob(graph, field, x):
    """Every edge once, whatever its multiplicity; a self-loop is J x_i x_i."""
    site = {node: i for i, node in enumerate(graph.nodes)}
    value = sum(h * int(s) for h, s in zip(field, x, strict=True))
    for a, b, data in graph.edges(data=True):
        value += data.get("weight", 1) * int(x[site[a]]) * int(x[site[b]])
    return value


def weighted_graph():
    graph = nx.Graph()
    graph.add_nodes_from("dacb")
    graph.add_edge("a", "b", weight=0.5)
    graph.add_edge("c", "d", weight=-1.25)
    graph.add_edge("a", "d")
    graph.add_edge("c", "c", weight=2.0)
    return graph


def multigraph():
    graph = nx.MultiGraph()
    graph.add_nodes_from([3, 1, 2, 7])
    graph.add_edge(3, 1, weight=0.5)
    graph.add_edge(1, 3, weight=0.75)
    graph.add_edge(3, 1)
    graph.add_edge(2, 2, weight=1.5)
    graph.add_edge(2, 2, weight=-0.25)
    graph.add_edge(2, 7, weight=-2)
    return graph


@pytest.mark.parametrize(
    "graph",
    [weighted_graph(), multigraph(), nx.path_graph(5), nx.complete_graph(4), nx.empty_graph(3)],
    ids=["weighted", "multi", "path", "complete", "no edges"],
)
def test_a_graph_is_its_edges(graph):
    n = graph.number_of_nodes()
    field = np.random.default_rng(n).normal(size=n)
    model = Ising(graph, field)
    for x in all_states(n):
        wanted = literal_graph_log_prob(graph, field, x)
        assert model.log_prob(x) == pytest.approx(wanted, abs=1e-13)
        ratios = literal_log_ratios(lambda y: literal_graph_log_prob(graph, field, y), x)
        np.testing.assert_allclose(model.log_ratios(x), ratios, atol=1e-13)
    assert model.dims == ("site",)


def test_node_labels_are_the_coordinate():
    assert Ising(weighted_graph()).coords["site"].tolist() == ["d", "a", "c", "b"]
    assert Ising(multigraph()).coords["site"].tolist() == [3, 1, 2, 7]
    for nodes, coordinate in (
        (["a", 1], ["a", "1"]),
        (["1", 1], ["'1'", "1"]),
        ([(0, 0), (0, 1)], ["(0, 0)", "(0, 1)"]),
        ([1.5, 0.5], [1.5, 0.5]),
        ([True, False], ["True", "False"]),
        ([np.int64(3), np.int8(-1)], [3, -1]),
    ):
        graph = nx.Graph()
        graph.add_nodes_from(nodes)
        model = Ising(graph)
        assert model.names == nodes
        assert model.coords["site"].tolist() == coordinate
        assert [int(model.condition({node: 1}).sites[0]) for node in nodes] == [0, 1]


def test_label():
    assert Ising(weighted_graph()).label(1) == Ising(weighted_graph()).coords["site"][1]
    assert Ising.lattice(np.zeros((2, 3))).label(4) == (1, 1)
    assert type(Ising(np.zeros((2, 2))).label(1)) is int


@pytest.mark.filterwarnings("ignore::sklsb.exceptions.SeparatedModesWarning")
def test_labels_reach_the_draws():
    sampler = LSBSampler("sqrt", n_chains=2, n_burn_in=20, random_state=0)
    draws = sampler.fit(Ising(weighted_graph())).sample(200)
    assert draws["x"].sel(site="b").dims == ("chain", "draw")
    np.testing.assert_array_equal(draws["x"].sel(site="b"), draws["x"].isel(site=3))


def test_empty_graph():
    assert Ising(nx.Graph()).n_sites == 0
    assert Ising(nx.Graph()).log_prob(np.empty(0, dtype=int)) == 0.0


# ----------------------------------------------------------------- lattices


SHAPES = [(1, 1), (1, 2), (2, 1), (1, 3), (1, 5), (2, 2), (2, 3), (3, 2), (3, 3), (2, 4)]


@pytest.mark.parametrize("periodic", [True, False])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_lattice_is_its_neighbour_pairs(shape, periodic):
    field = np.random.default_rng(sum(shape)).normal(size=shape)
    model = Ising.lattice(field, coupling=0.7, periodic=periodic)
    states = all_states(field.size)
    wanted = [
        literal_grid_log_prob(field, 0.7, periodic, x.reshape(shape).astype(int)) for x in states
    ]
    np.testing.assert_allclose(model.log_prob(states), wanted, atol=1e-13)
    for x in states[:: max(1, len(states) // 16)]:
        ratios = literal_log_ratios(
            lambda y: literal_grid_log_prob(field, 0.7, periodic, y.reshape(shape).astype(int)), x
        )
        np.testing.assert_allclose(model.log_ratios(x), ratios, atol=1e-12)
    assert (model.shape, model.dims) == (shape, ("row", "col"))


def test_short_sides_of_a_lattice():
    two = Ising.lattice(np.zeros((1, 2)), coupling=1.0)
    # Along the row 0-1 and 1-0 are two edges; down the column each site is its own neighbour.
    np.testing.assert_array_equal(two.couplings.toarray(), [[0, 2], [2, 0]])
    assert two.constant == 2.0
    one = Ising.lattice(np.zeros((1, 1)), coupling=1.0)
    assert (one.couplings.nnz, one.constant) == (0, 2.0)
    free = Ising.lattice(np.zeros((1, 1)), coupling=1.0, periodic=False)
    assert (free.couplings.nnz, free.constant) == (0, 0.0)
    square = Ising.lattice(np.zeros((2, 2)), coupling=1.0)
    np.testing.assert_array_equal(square.couplings.toarray().sum(axis=1), np.full(4, 4.0))
    assert square.couplings.nnz == 8


def test_large_lattice_has_four_neighbours():
    model = Ising.lattice(np.zeros((30, 40)), coupling=-0.25)
    np.testing.assert_array_equal(np.diff(model.couplings.indptr), 4)
    assert set(model.couplings.data) == {-0.25}
    np.testing.assert_array_equal(
        np.sort(model.couplings.indices[:4]), np.sort([1, 39, 40, 29 * 40])
    )
    free = Ising.lattice(np.zeros((30, 40)), periodic=False)
    assert free.couplings.nnz == 2 * (30 * 39 + 29 * 40)


@pytest.mark.parametrize("periodic", [True, False])
def test_from_image_is_equation_6(periodic):
    rng = np.random.default_rng(4)
    y = rng.normal(size=(3, 4))
    mean, noise_sd = 1.7, 2.3
    model = Ising.from_image(y, mean=mean, noise_sd=noise_sd, coupling=0.4, periodic=periodic)
    # Posterior: prior times the Gaussian densities of y_i about mean * x_i, up to a constant.
    states = all_states(12)[:: 2**12 // 50]
    wanted = [
        literal_grid_log_prob(np.zeros((3, 4)), 0.4, periodic, x.reshape(3, 4).astype(int))
        - np.sum((y.ravel() - mean * x) ** 2) / (2 * noise_sd**2)
        for x in states
    ]
    difference = model.log_prob(states) - np.array(wanted)
    np.testing.assert_allclose(difference, difference[0], atol=1e-12)
    np.testing.assert_allclose(model.field, y.ravel() * mean / noise_sd**2, rtol=1e-15)


def test_from_image_defaults_are_the_papers():
    y = np.random.default_rng(0).normal(size=(4, 3))
    model = Ising.from_image(y)
    np.testing.assert_allclose(model.field, y.ravel() / 9.0)
    np.testing.assert_array_equal(
        model.couplings.toarray(),
        Ising.lattice(np.zeros((4, 3)), 1.0, periodic=False).couplings.toarray(),
    )
    integers = np.arange(6, dtype=np.uint8).reshape(2, 3)
    with pytest.warns(ModelWarning, match="pixels from 0 to 5, none of them negative"):
        np.testing.assert_allclose(Ising.from_image(integers).field, integers.ravel() / 9.0)


@pytest.mark.parametrize(
    ("image", "white"),
    [
        (np.array([[0, 255], [40, 200]], dtype=np.uint8), 255),
        (np.array([[0, 255], [40, 200]], dtype=float), 255),
        (np.array([[0.0, 1.0], [0.1, 0.8]]), 1),
        (np.array([[False, True], [True, False]]), 1),
        (np.array([[0, 4095], [10, 7]]), 4095),
    ],
    ids=["bytes", "0 to 255", "0 to 1", "bool", "12 bits"],
)
def test_grey_levels_are_told_from_pixels_about_zero(image, white):
    told = rf"If 0 is black and {white} is white, give levels=\(0, {white}\), and noise_sd in the"
    with pytest.warns(ModelWarning, match=told) as seen:
        Ising.from_image(image, mean=2.0)
    assert seen[0].filename == __file__
    # What the message says to do is right, and not told any more.
    field = Ising.from_image(image, levels=(0, white), noise_sd=white).field.reshape(2, 2)
    np.testing.assert_allclose(field[image == 0], -0.25)
    np.testing.assert_allclose(field[image == white], 0.25)


def test_a_blank_image_is_nothing_to_tell_of():
    for level in (0.0, 1.0):
        Ising.from_image(np.full((2, 3), level))


# ----------------------------------------------------------------- layouts and dtypes of states


def test_vectorised_over_leading_axes_in_both_layouts():
    field = np.random.default_rng(0).normal(size=(2, 3))
    model = Ising.lattice(field, coupling=0.3)
    flat = np.random.default_rng(1).choice([-1, 1], size=(4, 5, 6))
    grid = flat.reshape(4, 5, 2, 3)
    one_by_one = [
        [literal_grid_log_prob(field, 0.3, True, grid[a, b]) for b in range(5)] for a in range(4)
    ]
    for x in (flat, grid):
        assert model.log_prob(x).shape == (4, 5)
        np.testing.assert_allclose(model.log_prob(x), one_by_one, atol=1e-13)
        assert model.log_ratios(x).shape == (4, 5, 6)
        np.testing.assert_array_equal(model.log_ratios(x)[2, 3], model.log_ratios(x[2, 3]))
    assert model.log_prob(flat[0, 0]).shape == model.log_prob(grid[0, 0]).shape == ()
    assert model.log_prob(np.empty((0, 6), dtype=int)).shape == (0,)
    assert model.log_prob(np.empty((7, 0, 2, 3), dtype=int)).shape == (7, 0)


@pytest.mark.parametrize("shape", [(1, 5), (5, 1), (1, 1)], ids=str)
def test_draws_of_a_thin_lattice_can_be_given_back(shape):
    model = Ising.lattice(np.random.default_rng(0).normal(size=shape), coupling=0.3)
    draws = np.random.default_rng(1).choice([-1, 1], size=(2, 7, *shape))
    # Where both layouts fit, as (..., 1, 5) does, the flat one counts: the row is a leading axis.
    leading = (2, 7, 1) if shape[0] == 1 else (2, 7)
    n_sites = shape[0] * shape[1]
    flat = draws.reshape(2, 7, n_sites)
    assert model.log_prob(draws).shape == leading
    np.testing.assert_array_equal(model.log_prob(draws).reshape(2, 7), model.log_prob(flat))
    assert model.log_ratios(draws).shape == (*leading, n_sites)
    np.testing.assert_array_equal(
        model.log_ratios(draws).reshape(flat.shape), model.log_ratios(flat)
    )


@pytest.mark.parametrize("dtype", [np.int8, np.int16, np.int64, np.float32, np.float64])
def test_states_of_any_real_dtype(dtype):
    model = Ising(random_couplings(4, 5), np.arange(4.0))
    states = all_states(4)
    np.testing.assert_array_equal(model.log_prob(states.astype(dtype)), model.log_prob(states))
    np.testing.assert_array_equal(
        model.log_prob(np.asfortranarray(states.astype(dtype))), model.log_prob(states)
    )
    assert model.log_prob(states.astype(dtype)).dtype == np.float64
    assert model.log_ratios(states.astype(dtype)).dtype == np.float64
    assert model.log_prob(states.tolist()).tolist() == model.log_prob(states).tolist()


def test_random_state_is_uniform_and_int8():
    model = Ising(np.zeros((3, 3)))
    rng = np.random.default_rng(0)
    states = np.array([model.draw_state(rng) for _ in range(4000)])
    assert states.dtype == np.int8
    assert set(np.unique(states)) == {-1, 1}
    counts = np.bincount(((states + 1) // 2) @ [4, 2, 1], minlength=8)
    # Eight cells of 500 expected; the 1 - 1e-9 quantile of chi-squared with 7 degrees is 55.
    assert ((counts - 500) ** 2 / 500).sum() < 55


# ----------------------------------------------------------------- nothing that was given changes


def frozen(array):
    array.flags.writeable = False
    return array


def test_read_only_inputs_work():
    couplings, field = random_couplings(5, 1), np.arange(5.0)
    wanted = Ising(couplings, field).log_prob(all_states(5))
    sparse = sp.csr_array(couplings)
    for part in (sparse.data, sparse.indices, sparse.indptr):
        frozen(part)
    for given in (frozen(couplings.copy()), sparse):
        model = Ising(given, frozen(field.copy()))
        np.testing.assert_array_equal(model.log_prob(frozen(all_states(5))), wanted)
    lattice = Ising.lattice(frozen(np.asfortranarray(np.arange(6.0).reshape(2, 3))))
    np.testing.assert_array_equal(lattice.field, np.arange(6.0))
    sampler = LSBSampler("sqrt", n_chains=2, n_burn_in=10, random_state=0)
    sampler.fit(lattice, initial_states=frozen(np.ones((2, 6), dtype=np.int8, order="F")))
    assert sampler.state_.shape == (2, 6)


def test_inputs_are_not_changed():
    # Unsorted, with a duplicate: what in-place clean-up would change.
    data = np.array([1.0, 2.0, 0.5, 2.5, 0.5])
    sparse = sp.csr_array((data, np.array([1, 1, 0, 0, 1]), np.array([0, 2, 5])), shape=(2, 2))
    before = copy.deepcopy(sparse)
    model = Ising(sparse)
    model.log_prob([1, 1])
    LSBSampler("sqrt", n_burn_in=5, random_state=0).fit(model)
    for name in ("data", "indices", "indptr"):
        np.testing.assert_array_equal(getattr(sparse, name), getattr(before, name))
    graph = multigraph()
    edges = list(graph.edges(keys=True, data=True))
    Ising(graph)
    assert list(graph.edges(keys=True, data=True)) == edges


def test_a_target_does_not_follow_later_changes_of_the_arrays():
    couplings, field = random_couplings(4, 2), np.arange(4.0)
    for given in (couplings, sp.csr_array(couplings)):
        model = Ising(given, field)
        before = model.log_prob(all_states(4))
        if sp.issparse(given):
            given.data[:] = 9.0
        else:
            given[:] = given + 1.0
        field += 1.0
        np.testing.assert_array_equal(model.log_prob(all_states(4)), before)
        field -= 1.0


def test_repr_pickle_copy():
    model = Ising.lattice(np.arange(6.0).reshape(2, 3), 0.5, periodic=False)
    assert repr(model) == "Ising(2 x 3 sites, 7 couplings)"
    assert repr(Ising(np.ones((3, 3)))) == "Ising(3 sites, 3 couplings)"
    LSBSampler("sqrt", n_burn_in=5, random_state=0).fit(model)
    for other in (pickle.loads(pickle.dumps(model)), copy.deepcopy(model)):
        assert repr(other) == repr(model)
        np.testing.assert_array_equal(other.log_prob(all_states(6)), model.log_prob(all_states(6)))
        assert other.dims == model.dims


# ----------------------------------------------------------------- extremes


def test_huge_fields_stay_finite():
    n = 5
    field = np.array([1e300, -1e300, 700.0, 0.0, -45.0])
    model = Ising(random_couplings(n, 3, loops=False), field)
    assert np.isfinite(model.log_prob(all_states(n))).all()
    assert np.isfinite(model.log_ratios(all_states(n))).all()


def test_largest_allowed_field_can_be_sampled():
    limit = LARGEST_FIELD
    field = limit * np.array([1.0, -1.0, 1.0])
    sampler = LSBSampler("sqrt", n_chains=2, n_burn_in=50, random_state=0)
    with pytest.warns(PrecisionWarning, match="The draws themselves are right"):
        sampler.fit(Ising(np.zeros((3, 3)), field))
    np.testing.assert_array_equal(sampler.state_, [[1, -1, 1], [1, -1, 1]])


def test_tiny_and_mixed_couplings_keep_their_digits():
    couplings = np.zeros((3, 3))
    couplings[0, 1] = couplings[1, 0] = 1e-250
    couplings[1, 2] = couplings[2, 1] = 1e5
    model = Ising(couplings)
    np.testing.assert_array_equal(model.log_ratios([1, 1, 1])[0], -2e-250)
    view = model.view()
    # The kernel's integers times their unit are the couplings, to 2^-53 of the row's sum.
    for i in range(3):
        for k in range(int(view.touched_start[i]), int(view.touched_start[i + 1])):
            j = int(view.touched[k])
            kept = float(view.coupling[k]) * view.unit[j]
            assert abs(kept - couplings[i, j]) <= 2.0**-53 * np.abs(couplings[j]).sum()


# ----------------------------------------------------------------- errors


def symmetric(n=3, **entries):
    couplings = np.zeros((n, n))
    for name, value in entries.items():
        i, j = int(name[1]), int(name[2])
        couplings[i, j] = couplings[j, i] = value
    return couplings


def one_sided(n=3):
    couplings = np.zeros((n, n))
    couplings[0, 2], couplings[2, 0] = 1.5, 1.25
    return couplings


ERRORS = [
    (lambda: Ising(np.zeros(3)), ValueError, r"couplings has shape \(3,\); give a square matrix"),
    (lambda: Ising(1.0), ValueError, r"couplings has shape \(\); give a square matrix"),
    (lambda: Ising(np.zeros((2, 3))), ValueError, r"couplings has shape \(2, 3\).*square"),
    (lambda: Ising(sp.csr_array((2, 3))), ValueError, r"couplings has shape \(2, 3\).*square"),
    (lambda: Ising(np.eye(2) * 1j), TypeError, "couplings has dtype complex128; give real"),
    (lambda: Ising(sp.csr_array(np.eye(2) * 1j)), TypeError, "couplings has dtype complex128"),
    (lambda: Ising(np.eye(2, dtype=object)), TypeError, "couplings has dtype object; give real"),
    (lambda: Ising([["a", "b"], ["b", "a"]]), TypeError, "couplings has dtype <U1; give real"),
    (lambda: Ising(symmetric(i02=np.nan)), ValueError, r"couplings\[0, 2\] is nan; it must be fin"),
    (lambda: Ising(symmetric(i12=np.inf)), ValueError, r"couplings\[1, 2\] is inf; it must be fin"),
    (
        lambda: Ising(sp.csc_array(symmetric(i11=-np.inf))),
        ValueError,
        r"couplings\[1, 1\] is -inf; it must be finite",
    ),
    (
        lambda: Ising(one_sided()),
        ValueError,
        r"couplings\[0, 2\] is 1\.5 but couplings\[2, 0\] is 1\.25.*couplings\.T\) / 2",
    ),
    (
        lambda: Ising(sp.csr_array(np.triu(np.ones((2, 2)), 1))),
        ValueError,
        r"couplings\[0, 1\] is 1\.0 but couplings\[1, 0\] is 0\.0; couplings must be symmetric",
    ),
    (lambda: Ising(nx.DiGraph([(0, 1)])), TypeError, "directed graph.*to_undirected"),
    (
        lambda: Ising(np.eye(2), [1.0, np.nan]),
        ValueError,
        r"field\[1\] is nan; it must be finite",
    ),
    (lambda: Ising(np.eye(2), np.inf), ValueError, r"field\[0\] is inf; it must be finite"),
    (lambda: Ising(np.eye(2), [1j, 0]), TypeError, "field has dtype complex128; give real"),
    (lambda: Ising(np.eye(2), [None, 0]), TypeError, "field has dtype object; give real"),
    (
        lambda: Ising(np.eye(2), np.zeros(3)),
        ValueError,
        r"field has shape \(3,\); it must be a number or of shape \(2,\)",
    ),
    (
        lambda: Ising(np.eye(2), np.zeros((2, 1))),
        ValueError,
        r"field has shape \(2, 1\); it must be a number or of shape \(2,\)",
    ),
    (
        lambda: Ising(np.zeros((3, 3)), [0, 1.5e307, 0]),
        ValueError,
        r"\|field\| \+ sum \|couplings\| of site 1 is 1\.5e\+307; it must be at most 1e\+\d+",
    ),
    (
        lambda: Ising(symmetric(i01=1.5e308, i02=1.5e308)),
        ValueError,
        r"sum \|couplings\| of site 0 is inf; it must be at most",
    ),
    (lambda: Ising.lattice(0.5), ValueError, r"field has shape \(\); a lattice needs"),
    (lambda: Ising.lattice(np.eye(2)[0], "pm"), ValueError, "coupling is 'pm'; give numbers"),
    (lambda: Ising.lattice((4, 4)), ValueError, r"\(4, 4\), as shapes are; give np\.zeros\(\(4, 4"),
    (
        lambda: Ising.lattice(np.zeros((2, 3)), "gaussian"),
        ValueError,
        r"coupling is 'gaussian'; give numbers\. .*rng\.normal\(size=\(2, 2, 3\)\)",
    ),
    (
        lambda: Ising.lattice(np.zeros((2, 2)), np.nan),
        ValueError,
        r"coupling\[0, 0, 0\] is nan; it must be finite",
    ),
    (
        lambda: Ising.lattice(np.zeros((2, 2)), [1.0, 2.0]),
        ValueError,
        r"coupling has shape \(2,\); it must be a number or of shape \(2, 2, 2\)",
    ),
    (lambda: Ising.lattice(np.zeros((2, 2)), None), TypeError, "coupling has dtype object; give"),
    (
        lambda: Ising.lattice(np.array([[0.0, np.nan]])),
        ValueError,
        r"field\[0, 1\] is nan; it must be finite",
    ),
    (
        lambda: Ising.from_image(np.zeros((2, 2)), noise_sd=0.0),
        ValueError,
        r"noise_sd is 0\.0; it must be a positive number",
    ),
    (
        lambda: Ising.from_image(np.zeros((2, 2)), noise_sd=-3),
        ValueError,
        "noise_sd is -3; it must be a positive number",
    ),
    (
        lambda: Ising.from_image(np.zeros((2, 2)), noise_sd=np.nan),
        ValueError,
        "noise_sd is nan; it must be a positive number",
    ),
    (
        lambda: Ising.from_image(np.zeros((2, 2)), noise_sd="loud"),
        (ValueError, TypeError),
        "noise_sd is 'loud'; it must be a positive number",
    ),
    (
        lambda: Ising.from_image(np.zeros((2, 2)), mean=np.inf),
        ValueError,
        "mean is inf; it must be a finite number",
    ),
    (
        lambda: Ising.from_image(np.zeros((2, 2)) * 1j),
        TypeError,
        "image has dtype complex128; give real numbers",
    ),
    (
        lambda: Ising.from_image(np.zeros((2, 2, 3))),
        ValueError,
        r"image has shape \(2, 2, 3\)",
    ),
    (
        lambda: Ising.from_image(np.empty((0, 3))),
        ValueError,
        r"image has shape \(0, 3\): it has no pixels",
    ),
    (
        lambda: Ising.from_image([[0.0, np.nan]]),
        ValueError,
        r"image\[0, 1\] is nan; it must be finite",
    ),
]


@pytest.mark.parametrize(("make", "error", "message"), ERRORS)
def test_errors_name_what_was_given(make, error, message):
    with pytest.raises(error, match=message):
        make()


STATE_ERRORS = [
    (
        np.ones(5),
        ValueError,
        r"x has shape \(5,\); the target needs \(\.\.\., 6\) or \(\.\.\., 2, 3",
    ),
    (np.ones((3, 2)), ValueError, r"x has shape \(3, 2\); the target needs"),
    (1, ValueError, r"x has shape \(\); the target needs"),
    (np.ones(6) * 1j, TypeError, r"x has dtype complex128; give integers, one of \(-1, 1\)"),
    (np.ones(6, dtype=object), TypeError, "x has dtype object; give integers"),
    (["a"] * 6, TypeError, "x has dtype <U1; give integers"),
    ([1, 1, 0, 1, 1, 1], ValueError, r"x\[2\] is 0; every variable .* the values \(-1, 1\)"),
    ([[1] * 6, [1, 1, 1, 1, 1, 3]], ValueError, r"x\[1, 5\] is 3; every variable"),
    ([1, 1, np.nan, 1, 1, 1], ValueError, r"x\[2\] is nan; every variable"),
    ([1, 1, 1, 1.5, 1, 1], ValueError, r"x\[3\] is 1\.5; every variable"),
    (np.array([1, 255, 1, 1, 1, 1], np.uint8), ValueError, r"x\[1\] is 255; every variable"),
    (np.zeros(6, dtype=bool), ValueError, r"x\[0\] is False; every variable"),
]


@pytest.mark.parametrize(("x", "error", "message"), STATE_ERRORS)
def test_wrong_states_are_refused(x, error, message):
    model = Ising.lattice(np.zeros((2, 3)))
    for method in (model.log_prob, model.log_ratios):
        with pytest.raises(error, match=message):
            method(x)


def test_shape_message_of_a_plain_graph_names_one_layout():
    with pytest.raises(ValueError, match=r"the target needs \(\.\.\., 3\)\.$"):
        Ising(np.zeros((3, 3))).log_prob([1, 1])


def test_indicators_are_not_taken_for_states():
    target = FunctionTarget(lambda x: x.sum(-1), 3, 3, vectorized=True)
    ids = np.array([[0, 1, 2], [2, 2, 0]])
    for one_hot in (np.eye(3)[ids], np.eye(3, dtype=int)[ids], np.eye(3)):
        with pytest.warns(ModelWarning, match=r"indicators .* Give x\.argmax\(-1\); int8"):
            target.log_prob(one_hot)
    target.log_prob(np.eye(3, dtype=target.dtype))
    target.log_prob([*np.eye(3, dtype=int)[:2], [2, 0, 0]])
    with pytest.raises(ValueError, match=r"needs \(\.\.\., 3\)\. Of indicators .* x\.argmax\(-1\)"):
        target.log_prob(np.eye(4)[ids])


def test_target_is_abstract():
    with pytest.raises(TypeError, match="abstract"):
        Target()


def test_arrays_of_a_target_cannot_be_changed():
    model = Ising([[0.0, 1.0], [1.0, 0.0]], [0.5, 0.0])
    for one in (model, pickle.loads(pickle.dumps(model))):
        with pytest.raises(ValueError, match="read-only"):
            one.field[0] = 3.0
        with pytest.raises(ValueError, match="read-only"):
            one.couplings.data[0] = 3.0


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: Ising([[0, 1], [1]]), ValueError, "couplings is not an array of numbers"),
        (lambda: Ising(np.eye(2), [[1], [2, 3]]), ValueError, "field is not an array of numbers"),
        (lambda: Ising(nx.Graph([(0, 1, {"J": 2.0})])), ValueError, r"attributes \['J'\] but no"),
        (lambda: Ising(nx.Graph([(0, 1, {"weight": "h"})])), TypeError, r"edge \(0, 1\) is 'h'"),
        (lambda: Ising.lattice(np.zeros((2, 2)), periodic="no"), TypeError, "periodic is 'no'"),
        (lambda: Ising.from_image(np.ones((2, 2)), noise_sd=1e-200), ValueError, "1e-200"),
    ],
)
def test_more_errors_name_what_was_given(make, error, message):
    with pytest.raises(error, match=message):
        make()


MACHINE = np.random.default_rng(2).normal(size=(4, 3))
TABLE = np.random.default_rng(3).random((3, 3))
SYMMETRIES = {
    "cycle": [
        Ising(random_couplings(5, 0)),
        Potts(random_couplings(4, 0), np.repeat([[0.3], [0.0], [-1.0], [2.0]], 3, axis=1)),
        RBM(MACHINE, -MACHINE.sum(axis=1) / 2, -MACHINE.sum(axis=0) / 2),
        MarkovNetwork([2, 2, 2], [((0, 1), [[1, 0], [0, 1]]), ((2, 1), [[3, 1], [1, 3]])]),
        MarkovNetwork([3, 3, 1], [((0, 2, 1), [[[2, 0, 1]], [[1, 2, 0]], [[0, 1, 2]]])]),
    ],
    "reverse": [
        MarkovNetwork([3, 3], [((0, 1), TABLE + TABLE[::-1, ::-1]), ((), 2.0)]),
        MarkovNetwork([3, 2], [((1, 0), [[1, 2, 3], [3, 2, 1]])]),
    ],
    None: [
        Ising(random_couplings(5, 0), field=[0, 0, 1e-9, 0, 0]),
        Ising(random_couplings(5, 0)).condition({0: 1}),
        Potts(random_couplings(2, 0), [[0.0, 0.0, 0.0], [0.0, 0.0, -np.inf]]),
        RBM(MACHINE, -MACHINE.sum(axis=1) / 2, [0.0, 0.0, 0.0]),
        RBM(MACHINE, [0.0] * 4, -MACHINE.sum(axis=0) / 2),
        MarkovNetwork([2, 2], [((0, 1), [[1, 0], [0, 2]])]),
        MarkovNetwork([3, 3], [((0, 1), TABLE)]),
    ],
}


@pytest.mark.parametrize("symmetry", SYMMETRIES)
def test_symmetries(symmetry):
    """Against all states, and their images."""
    for target in SYMMETRIES[symmetry]:
        assert target.symmetry == symmetry
        x, k = exact.states(target), target.cardinalities
        log_p = target.log_prob(x)
        index = np.searchsorted(target.values, x)
        images = {"cycle": (index + 1) % k, "reverse": k - 1 - index}
        values = np.asarray(target.values)
        same = {
            name: np.allclose(log_p, target.log_prob(values[image]), rtol=1e-12, atol=1e-12)
            for name, image in images.items()
        }
        assert same["cycle"] == (symmetry == "cycle")
        assert symmetry == "cycle" or same["reverse"] == (symmetry == "reverse")


@pytest.mark.parametrize(
    ("claimed", "match"), [("cycle", "after what the symmetry"), ("swap", "symmetry is 'swap'")]
)
def test_a_wrong_symmetry_is_found(claimed, match):
    class Wrong(Ising):
        symmetry = claimed

    with pytest.raises(AssertionError, match=match):
        check_target(Wrong(random_couplings(5, 0), np.ones(5)))


@pytest.mark.parametrize("claimed", ["swap", "reversed", True, ["cycle"]])
def test_fit_refuses_an_unknown_symmetry(claimed):
    class Wrong(Ising):
        symmetry = claimed

    words = rf"symmetry of Wrong.* is {re.escape(repr(claimed))}; .*\['cycle', 'reverse'\], or None"
    sampler = GibbsSampler("random", n_chains=2)
    with pytest.raises(ValueError, match=words):
        sampler.fit(Wrong(random_couplings(5, 0)))
    assert not hasattr(sampler, "target_")


# ----------------------------------------------------------------- no variables, no states

NOTHING = {
    "network": MarkovNetwork([], []),
    "constant": MarkovNetwork([], [((), 0.25)]),
    "ising": Ising(np.zeros((0, 0))),
    "function": FunctionTarget(lambda x: 0.0 * x.sum(), 0),
}


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=pytest.mark.slow if n == "function" else ()) for n in NOTHING]
)
def test_without_variables_there_is_one_state(name):
    target = NOTHING[name]
    assert target.log_prob(np.empty((2, 0))).tolist() == [target.log_prob(np.empty(0))] * 2
    assert repr(target).count("0 sites") == 1
    sampler = GibbsSampler("random", random_state=0).fit(target)
    assert sampler.sample(3)["x"].shape == (4, 3, 0)
    assert sampler.sample(3, record="marginals")["p"].shape[0] == 0


@pytest.mark.slow
@pytest.mark.parametrize("name", NOTHING)
def test_all_samplers_answer_without_variables(name):
    target = NOTHING[name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TemperingWarning)  # of so few scans
        for sampler in (LSBSampler(), ParallelTempering(), AutoSampler()):
            sampler.set_params(random_state=0).fit(target)
            assert sampler.sample(3)["x"].shape == (4, 3, 0)
        warnings.simplefilter("ignore", SamplerWarning)
        assert draw(target, 3, random_state=0).shape == (3, 0)


@pytest.mark.parametrize("name", ["network", "constant", "ising"])
def test_exact_answers_without_variables(name):
    target = NOTHING[name]
    log_z = -math.log(4.0) if name == "constant" else 0.0
    assert exact.log_partition(target) == pytest.approx(log_z, abs=1e-15)
    assert exact.marginals(target)["p"].shape == (0, len(target.values))
    assert exact.marginals(target, [])["p"].shape == ()
    assert float(exact.most_likely(target)["lp"]) == pytest.approx(log_z, abs=1e-15)
    assert exact.sample(target, 3)["x"].shape == (1, 3, 0)
    assert exact.elimination_cost(target, "marginals").fits


def test_a_run_without_variables_is_stored(tmp_path):
    sampler = GibbsSampler("random", random_state=0).fit(NOTHING["network"])
    sampler.sample(3, store=tmp_path / "run.zarr")
    assert open_draws(tmp_path / "run.zarr").sizes["draw"] == 3


@pytest.mark.parametrize("ask", [exact.log_partition, exact.marginals, exact.most_likely, draw])
def test_a_contradiction_has_no_answer(ask):
    """Two variables are equal to a third, and differ."""
    target = contradiction()
    with pytest.raises(ValueError, match="has no state of positive probability"):
        ask(target, *[2] * (ask is draw))


def contradiction():
    equal = [[1.0, 0.0], [0.0, 1.0]]
    other = [[0.0, 1.0], [1.0, 0.0]]
    return MarkovNetwork([2] * 3, [((0, 1), equal), ((1, 2), equal), ((0, 2), other)])


@pytest.mark.parametrize("sampler", [ParallelTempering(), EliminationSampler()])
def test_samplers_that_sum_out_say_that_there_is_no_state(sampler):
    with pytest.raises(ValueError, match="has no state of positive probability"):
        sampler.set_params(random_state=0).fit(contradiction())


@pytest.mark.parametrize("sampler", [GibbsSampler("random"), LSBSampler(), AutoSampler()])
def test_samplers_that_look_for_a_state_say_where_to_ask(sampler):
    told = r"found in 20 attempts; factor \d over the variables .* exact.most_likely finds a state"
    with pytest.raises(ValueError, match=told):
        sampler.set_params(random_state=0).fit(contradiction())


# ----------------------------------------------------------------- what was meant


@pytest.mark.parametrize(
    "edges",
    [[(0, 1, 0.5)], [(0, 1), (1, 2)], [(0, 1, 2), (1, 2, 0), (2, 0, 1)], [("a", "b", 1.0)]],
)
def test_edges_are_no_matrix(edges):
    message = re.escape(f"couplings is {edges}, which looks like edges of a graph. Give a networkx")
    with pytest.raises(TypeError, match=message):
        Ising(edges)
    pairs = {edge[:2]: 1.0 for edge in edges}
    with pytest.raises(TypeError, match=r"Q is \{.*which looks like edges .*scipy.sparse.coo_arr"):
        Ising.from_qubo(pairs)
    matrix = [(0.0, 1.0), (1.0, 0.0)]
    assert Ising(matrix).couplings.toarray().tolist() == [[0, 1], [1, 0]]


def test_a_grid_is_not_given_by_its_sides():
    for cls, shape in ((Ising, r"\(8, 9\)"), (Potts, r"\(8, 9, k\)")):
        for keywords in ({}, {"coupling": 0.3}):
            with pytest.raises(TypeError, match=rf"lattice was given 8 and 9, .*zeros\({shape}\)"):
                cls.lattice(8, 9, **keywords)
    assert "coupling" in inspect.signature(Ising.lattice).parameters


def test_what_is_no_target_says_where_it_is():
    target = Ising(np.zeros((2, 2)))
    with pytest.raises(TypeError, match=r"target is GibbsSampler\(\).* as sampler\.target_"):
        exact.marginals(GibbsSampler())
    draws = exact.sample(target, 2, random_state=0)
    with pytest.raises(TypeError, match=r"(?s)not a sklsb Target; draws come first only in"):
        exact.marginals(draws)
    for call in (diagnostics.marginals, diagnostics.to_frame, diagnostics.disagreement):
        with pytest.raises(TypeError, match="of the types Ising, Dataset; give draws, what sample"):
            call(target, draws)
    for call in (diagnostics.best_state, diagnostics.ess):
        with pytest.raises(TypeError, match="of the types Ising; give draws"):
            call(target)


def test_an_error_of_a_function_says_what_it_was_given():
    for function, error in ((lambda x: x["b"], IndexError), (lambda x, y: x, TypeError)):
        with pytest.raises(error) as caught:
            FunctionTarget(function, 2, names=["a", "b"])
        assert "an array of shape (2,)" in caught.value.__notes__[0]
        assert "'a' is x[..., 0]. The function takes this one" in caught.value.__notes__[0]


def test_flat_states_of_a_grid_are_row_by_row():
    field = np.arange(6.0).reshape(2, 3)
    target = Ising.lattice(field, 0.0)
    x = np.array([[1, -1, 1], [1, 1, -1]])
    assert target.log_prob(x) == target.log_prob(x.ravel()) == (x * field).sum()
    with pytest.raises(ValueError, match=r"x has shape \(3, 2\); the target needs .*6"):
        target.log_prob(x.T)
    row = Ising.lattice(np.zeros((1, 3)))
    assert row.log_prob(np.ones((1, 3), int)).shape == (1,)


# ----------------------------------------------------------------- what a target offers


def test_what_a_target_offers_is_in_one_object():
    ising = Ising([[0.0, 0.5], [0.5, 0.0]], [0.25, -1.0])
    machine = RBM([[2.0, -1.0]], [0.5], [1.0, 0.0])
    for target in (ising, ising.condition({0: 1})):
        assert target.offers.plain is target.offers.pairwise is ising
        assert target.offers.linear
        assert target.offers.factors
        assert target.offers.own_factors
        assert not target.offers.joint_zeros
        assert target.offers.size == 1.75
        assert target.offers.layers is None
    for target in (machine, machine.condition({0: 1})):
        assert target.offers.layers is machine
        assert target.offers.pairwise is None
        assert not target.offers.factors
        assert target.offers.size == 4.5
    network = MarkovNetwork([2, 2], [((0, 1), [[1.0, 0.0], [0.0, 1.0]])])
    assert network.offers.joint_zeros
    mixed = MarkovNetwork([2, 3, 1, 2], [])
    for target in (mixed, mixed.condition({1: 2})):
        assert target.offers.n_moves == 4
        assert target.offers.site_of_moves.tolist() == [0, 1, 1, 3]
        assert target.offers.first_moves.tolist() == [0, 1, 3, 3]
    single = FunctionTarget(lambda x: 0.1 * x.sum(axis=-1, dtype=np.float32), 3)
    assert single.offers.single_precision
    assert single.offers.may_change
    assert not ising.offers.single_precision
    assert not ising.offers.may_change
