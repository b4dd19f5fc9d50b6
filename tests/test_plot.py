"""Pictures hold the numbers that they should; notebooks get short and escaped tables."""

import inspect
import re

import numpy as np
import pandas as pd
import pytest
import xarray as xr

from sklsb import RBM, Ising, MarkovNetwork, Potts, exact, plot
from sklsb._system.html import Candidates
from sklsb.diagnostics.draws import draws_dataset, to_frame

pyplot = pytest.importorskip("matplotlib.pyplot", reason="matplotlib is optional")
nx = pytest.importorskip("networkx", reason="networkx is optional")

PAIR = MarkovNetwork([2, 3], [(["rain", "river"], [[4, 1, 1], [0, 1, 3]])], names=["rain", "river"])
TREE = Ising([[0, 1, 0], [1, 0, -0.5], [0, -0.5, 0]], [0.5, 0, 0])


@pytest.fixture(autouse=True)
def closed():
    yield
    pyplot.close("all")


def lines_and_nodes(ax):
    lines, nodes = ax.collections[:2]
    return lines, nodes


def test_edges_are_as_strong_as_couplings():
    lines, nodes = lines_and_nodes(TREE.plot())
    np.testing.assert_allclose(lines.get_linewidths(), [4.3, 2.3])
    blue, red = lines.get_colors()
    assert blue[2] > blue[0]
    assert red[0] > red[2]
    assert (nodes.get_facecolors() == 1.0).all()


def hues(target):
    """Return the colour of each arrow."""
    return [arrow.get_edgecolor()[:3] for arrow in target.plot().patches]


def test_colours_go_by_names_of_values():
    to_rgb = pytest.importorskip("matplotlib.colors").to_rgb
    blue, red, grey = to_rgb(plot._POSITIVE), to_rgb(plot._NEGATIVE), to_rgb("0.6")
    like, other = {"yes": [0.1, 0.9], "no": [0.9, 0.1]}, {"yes": [0.9, 0.1], "no": [0.1, 0.9]}
    for table, hue in ((like, blue), (other, red)):
        for order in (["yes", "no"], ["no", "yes"]):
            cough = pd.DataFrame({"flu": ["no", "yes"], **table})[["flu", *order]]
            network = MarkovNetwork.from_tables({"flu": {"no": 0.8, "yes": 0.2}, "cough": cough})
            assert hues(network) == [hue]
            assert hues(network.condition({"flu": "yes"})) == [hue]
    test = pd.DataFrame({"flu": ["no", "yes"], "neg": [0.9, 0.1], "pos": [0.1, 0.9]})
    assert hues(network.from_tables({"flu": {"no": 0.8, "yes": 0.2}, "test": test})) == [grey]


def test_widths_on_a_common_scale():
    common = TREE.plot(max_strength=2.0).collections[0].get_linewidths()
    np.testing.assert_allclose(common, [2.3, 1.3])
    strong = TREE.plot(min_strength=0.75)
    assert strong.collections[0].get_linewidths() == [4.3]
    assert [t.get_position() for t in strong.texts] == [t.get_position() for t in TREE.plot().texts]
    capped = TREE.plot(max_strength=0.5).collections[0].get_linewidths()
    np.testing.assert_allclose(capped, [4.3, 4.3])


def test_methods_show_the_parameters():
    mine, of_graph = (inspect.signature(f).parameters for f in (TREE.plot, plot.graph))
    assert [*mine] == [*of_graph][1:]
    assert all(mine[name].default == of_graph[name].default for name in mine)


def test_strengths_of_other_models():
    assert plot._strengths(TREE) == {(0, 1): 1.0, (1, 2): -0.5}
    potts = Potts([[0, 2.0], [2.0, 0]], np.zeros((2, 3)))
    assert plot._strengths(potts)[0, 1] == pytest.approx(2.0 * (1 - 1 / 3) ** 2 * 1.0, rel=0.5)
    assert np.isfinite(plot._strengths(PAIR)[0, 1])
    alone = MarkovNetwork([2, 2], [((0, 1), np.outer([1, 2], [3, 4]))])
    assert plot._strengths(alone)[0, 1] == pytest.approx(0.0, abs=1e-12)


def test_nodes_are_coloured_by_probability_and_observed_ones_are_bold():
    given = TREE.condition({1: 1})
    ax = plot.graph(given, exact.marginals(given))
    nodes = ax.collections[1]
    assert list(nodes.get_linewidths()) == [0.6, 2.5, 0.6]
    p = exact.marginals(given)["p"].sel(state=1).values
    redness = 1.0 - nodes.get_facecolors()[:, 1]
    assert np.argsort(redness).tolist() == np.argsort(p).tolist()
    assert {axes.get_ylabel() for axes in ax.figure.axes} == {"", "probability of 1"}
    down = plot.graph(given, exact.marginals(given), state=-1).collections[1]
    assert (1.0 - down.get_facecolors()[:, 1])[1] < redness[1]


def bars_of(found, state):
    return [t.get_text() for t in plot.marginals(found, state=state).get_yticklabels()]


def test_values_that_some_variables_have():
    states = {"cold": ["no", "yes"], "age": ["young", "old"]}
    tables = {"cold": [0.9, 0.1], "age": [0.6, 0.4]}
    network = MarkovNetwork.from_tables(tables, state_names=states).condition({"age": "young"})
    plan = exact.prepare(network)
    for found in (exact.marginals(network), plan.marginals()):
        labels = [t.get_text() for t in plot.graph(network, found, state="no").texts]
        assert labels == ["cold:\nno", "age:\nyoung"]
        assert plot.graph(network, found).figure.axes[1].get_ylabel().endswith("the value shown")
    assert len(plot.marginals(plan.marginals(None, ["cold"])).patches) == 1
    for state, message in (
        ("ye", r"did you mean 'yes'\? give one of \['no', 'yes', 'young', 'old'\] instead"),
        ({"age": "odl"}, r"did you mean 'old'\? give one of \['young', 'old'\] instead of 'odl'"),
        ({"aeg": "old"}, r"did you mean 'age'\? give one of \['cold', 'age'\] instead of 'aeg'"),
    ):
        for draw in (lambda s: plot.graph(network, found, state=s), lambda s: bars_of(found, s)):
            with pytest.raises(ValueError, match=message):
                draw(state)
    labels = [t.get_text() for t in plot.graph(network, found, state={"cold": "no"}).texts]
    assert labels == ["cold:\nno", "age:\nyoung"]
    assert bars_of(found, {"age": "young"}) == ["cold = yes", "age = young"]
    assert bars_of(found, "no") == ["cold = no", "age = old"]
    assert bars_of(exact.marginals(PAIR), {"river": 1}) == ["rain = 1", "river = 1"]
    # The first of two values, if it is the one that people mean.
    flu = MarkovNetwork.from_tables({"flu": {"Yes": 0.2, "No": 0.8}, "sex": {"f": 0.4, "m": 0.6}})
    bars = plot.marginals(exact.marginals(flu))
    assert [t.get_text() for t in bars.get_yticklabels()] == ["flu = Yes", "sex = m"]
    assert plot.graph(flu, exact.marginals(flu)).texts[0].get_text() == "flu:\nYes"
    # Where all share their values, an observed absence is pale.
    given = TREE.condition({1: -1})
    ax = plot.graph(given, exact.marginals(given))
    assert ax.figure.axes[1].get_ylabel() == "probability of 1"
    assert (1.0 - ax.collections[1].get_facecolors()[:, 1]).argmin() == 1


def test_layouts():
    grid = plot.graph(Ising.lattice(np.zeros((2, 3)), 0.1))
    where = {t.get_text(): t.get_position() for t in grid.texts}
    assert where["0,2"] == (2, 0)
    assert where["1,0"] == (0, -1)
    named = plot.graph(PAIR, layout={"rain": (5, 6), "river": (0, 0)}, ax=pyplot.subplots()[1])
    assert [t.get_position() for t in named.texts] == [(5, 6), (0, 0)]
    labels = plot.graph(PAIR, exact.marginals(PAIR), layout=nx.circular_layout).texts
    assert [t.get_text() for t in labels] == ["rain:\n1", "river:\n2"]


def arrows_of(ax):
    """Return the ends of each arrow, by the names of the nodes nearest to them."""
    nodes = {t.get_text().split(":")[0]: np.array(t.get_position()) for t in ax.texts}

    def nearest(place):
        return min(nodes, key=lambda name: np.abs(nodes[name] - place).sum())

    return [tuple(map(nearest, arrow._posA_posB)) for arrow in ax.patches]


def test_arrows_lead_from_parents_to_children():
    tables = {"late": [[0.9, 0.1], [0.3, 0.7]], "early": [0.4, 0.6], "two": np.full((2, 2, 2), 0.5)}
    network = MarkovNetwork.from_tables(tables, {"late": ["early"], "two": ["late", "early"]})
    soft = network.condition({"late": {0: 0.9, 1: 0.2}})
    with pytest.raises(TypeError, match="conditional tables alone"):
        soft.table("late")
    for target in (network, network.condition({"late": 1}), soft):
        ax = target.plot()
        assert sorted(arrows_of(ax)) == [("early", "late"), ("early", "two"), ("late", "two")]
        where = {t.get_text(): t.get_position() for t in ax.texts}
        assert where["early"][1] > where["late"][1] > where["two"][1]
    assert not PAIR.plot().patches  # no direction is known
    straight, bent, _ = (
        arrow.get_connectionstyle().rad
        for arrow, _ in sorted(zip(ax.patches, arrows_of(ax), strict=True), key=lambda p: p[1])
    )
    assert straight == 0  # from "early" to "late"
    assert bent != 0  # past "late", which lies between


def test_slices_are_columns():
    tables = {("a", 0): [0.5, 0.5], ("a", 1): [[0.7, 0.3], [0.4, 0.6]], ("b", 0): np.eye(2)}
    parents = {("a", 1): [("a", 0)], ("b", 0): [("a", 0)]}
    ax = MarkovNetwork.unroll(tables, 3, parents).plot()
    where = {t.get_text(): tuple(t.get_position()) for t in ax.texts}
    assert where == {f"{v},{t}": (t, -k) for t in range(3) for k, v in enumerate("ab")}
    assert ("a,0", "a,1") in arrows_of(ax)


def test_labels_fit_in_nodes_that_do_not_overlap():
    names = ["loss of interest", "psychomotor_agitation", *"abcdefghij", "concentration"]
    rng = np.random.default_rng(0)
    couplings = np.triu(rng.random((13, 13)) < 0.3, 1).astype(float)
    ising = Ising(couplings + couplings.T, names=names)
    parents = {k: [*rng.choice(names[:k], min(k, 2), replace=False)] for k in range(1, 13)}
    network = MarkovNetwork.from_tables(
        {name: np.full((2,) * (1 + min(k, 2)), 0.5) for k, name in enumerate(names)},
        {names[k]: own for k, own in parents.items()},
    )
    for target in (ising, network):
        ax = target.plot(exact.marginals(target))
        figure = ax.figure
        figure.canvas.draw()
        nodes = next(c for c in ax.collections if len(c.get_offsets()) == 13)
        at = ax.transData.transform(nodes.get_offsets())
        size = np.sqrt(nodes.get_sizes()[0]) * figure.dpi / 72
        apart = np.hypot(*(at[:, None] - at).T) + 1e9 * np.eye(13)
        assert apart.min() > size
        assert len(ax.texts) == 13
        for text in ax.texts:
            assert text.get_window_extent().width < 1.1 * size


def test_bars_of_marginals():
    after, before = exact.marginals(PAIR, evidence={"rain": 1}), exact.marginals(PAIR)
    after["mcse"] = after["mcse"] + 0.01
    ax = plot.marginals(after, before)
    assert [t.get_text() for t in ax.get_yticklabels()] == [
        "rain = 1",
        *(f"river = {k}" for k in range(3)),
    ]
    new, old = ax.containers[1], ax.containers[2]
    np.testing.assert_allclose([b.get_width() for b in new], [1.0, 0.0, 0.25, 0.75])
    np.testing.assert_allclose([b.get_width() for b in old], [0.4, 0.4, 0.2, 0.4])
    ends = ax.containers[0].lines[2][0].get_segments()[2][:, 0]
    np.testing.assert_allclose(ends, [0.23, 0.27])
    assert [t.get_text() for t in ax.get_legend().texts] == ["after", "before"]
    groups = plot.marginals(after, before, labels=["ill", "well"])
    assert [t.get_text() for t in groups.get_legend().texts] == ["ill", "well"]
    assert len(plot.marginals(before, variables=["river"]).patches) == 3


def draws_of(x):
    x = np.array(x, np.int8)
    found = draws_dataset(x, Ising(np.zeros((x.shape[2],) * 2)))
    return found.assign_coords(lp=(("chain", "draw"), x.sum(axis=2).astype(float)))


def test_histograms_and_traces():
    draws = draws_of([[[1, 1], [1, -1], [-1, -1]], [[1, 1], [1, 1], [1, 1]]])
    q = plot.overlaps(draws).patches[0].get_xy()
    heights = {round(float(x), 1): y for x, y in q[1::2]}
    assert {*heights.values()} - {0.0} == {1 / 3}  # -1, 0 and 1, once each
    assert len(plot.energies(draws).patches) == 2
    np.testing.assert_array_equal(plot.traces(draws).lines[0].get_ydata(), [2, 0, -2])
    one = plot.overlaps(draws_of([[[1, 1], [1, 1], [-1, -1], [-1, -1]]])).patches[0].get_xy()
    assert one[np.argmax(one[:, 1]), 0] < 0


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: plot.graph(Ising(np.zeros((301, 301)))),
            "target has 301 variables; .* at most 300",
        ),
        (
            lambda: plot.graph(PAIR, exact.marginals(TREE)),
            r"shape \(3, 2\); give marginals .*\(2, 3\)",
        ),
        (
            lambda: plot.graph(RBM(np.ones((3, 2)), [0, 0, 0], [0, 0])),
            r"target is RBM.*, which has neither factors nor a graph; plot its marginals",
        ),
        (lambda: plot.graph(PAIR, layout={"rain": (0, 0)}), r"layout has no place for \['river'\]"),
        (
            lambda: plot.graph(TREE, exact.marginals(TREE), state=0),
            r"state is 0; give one of \[-1, 1\]",
        ),
        (
            lambda: plot.marginals(exact.marginals(PAIR, [0, 1])),
            "this is a joint distribution; give marginals, as",
        ),
        (
            lambda: plot.marginals(exact.marginals(PAIR), exact.marginals(TREE)),
            "only one of after and before has 'rain' = 0",
        ),
        (
            lambda: plot.marginals(exact.marginals(PAIR), variables=["sun"]),
            "there is no 'sun'; name",
        ),
        (lambda: plot.marginals(exact.marginals(Ising(np.zeros((99, 99))))), "99 bars; name .* 80"),
        (lambda: TREE.plot(min_strength=-1), "min_strength is -1; give a number that is not neg"),
        (
            lambda: plot.marginals(exact.marginals(PAIR), labels=["a"]),
            r"labels is \['a'\]; give two",
        ),
        (lambda: plot.traces(xr.Dataset()), r"draws has \[\], and name is 'lp'; give one of"),
        (lambda: plot.overlaps(draws_of([[[1, 1]]])), "give the states x of at least two draws"),
        (
            lambda: plot.overlaps(draws_of([[[1, 1]]]).expand_dims(beta=[0.5, 1.0])),
            "several temperatures; give one",
        ),
    ],
)
def test_what_is_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_without_matplotlib(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "matplotlib", None)
    with pytest.raises(ImportError, match=r"needs matplotlib; run `pip install sklsb\[plot\]`"):
        plot.traces(draws_of([[[1, 1]]]))


# ----------------------------------------------------------------- notebooks


def test_targets_in_notebooks_are_short_and_escaped():
    names = ["<b>", *map(str, range(30))]
    network = MarkovNetwork([2] * 31, [], names=names).condition({"<b>": 1})
    html = network._repr_html_()
    assert "&lt;b&gt; = 1" in html
    assert "<b>" not in html
    assert "8, ..." in html
    assert len(html) < 800
    assert "4 variables" in Ising(np.zeros((4, 4)))._repr_html_()


def test_candidates_in_notebooks_are_sorted():
    found = Candidates(
        {"ess_per_work": ("candidate", [1.0, np.nan, 3.0])},
        {"candidate": ["a", "b<", "c"]},
        {"chosen": "c"},
    )
    html = found._repr_html_()
    assert re.findall(r"<tr><th>([^<]*)</th>", html) == ["candidate", "c (chosen)", "a", "b&lt;"]
    assert "xr-wrap" in found.sel(candidate="a")._repr_html_()


def test_draws_in_place_of_marginals_are_told():
    with pytest.raises(
        TypeError, match=r"no marginals; give .*diagnostics.marginals\(draws, target"
    ):
        plot.marginals(exact.sample(PAIR, 5, random_state=0))
    with pytest.raises(TypeError, match=r"no marginals; give "):
        PAIR.plot(exact.sample(PAIR, 5, random_state=0))
    with pytest.raises(TypeError, match=r"no marginals; give "):
        plot.marginals(to_frame(exact.sample(PAIR, 5, random_state=0), PAIR))
