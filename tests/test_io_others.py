"""Formulas, colourings, Ergo, libDAI, qubist, bqpjson, models of pyAgrum, and BIF written."""

import itertools
import json
import math
import sys

import numpy as np
import pytest
from scipy import stats

from sklsb import MarkovNetwork, exact, io
from sklsb.io import read_model
from sklsb.io.dimacs import read_cnf


def save(folder, name, text):
    path = folder / name
    path.write_text(text)
    return path


# ----------------------------------------------------------------- formulas


def formula(rng, n=8):
    """Return random clauses, also with a literal twice, and weights of some variables."""
    clauses = [
        [int(v) for v in rng.integers(1, n + 1, rng.integers(1, 5)) * rng.choice([-1, 1])]
        for _ in range(rng.integers(3, 12))
    ]
    weights = {s * v: float(rng.integers(1, 9)) / 8 for v in (2, 5) for s in (-1, 1)}
    return clauses, weights


def text_of(n, clauses, weights, modern):
    lines = [f"p cnf {n} {len(clauses)}", "c p weights are below"]
    for v, w in weights.items():
        lines.append(f"c p weight {v} {w} 0" if modern else f"w {v} {w}")
    return "\n".join([*lines, *(" ".join(map(str, [*clause, 0])) for clause in clauses), ""])


def models_of(n, clauses):
    for x in itertools.product((0, 1), repeat=n):
        if all(any(x[abs(v) - 1] == (v > 0) for v in clause) for clause in clauses):
            yield x


@pytest.mark.parametrize("seed", range(30))
def test_formulas_are_counted(tmp_path, seed):
    rng = np.random.default_rng(seed)
    n = 8
    clauses, weights = formula(rng, n)
    states = list(models_of(n, clauses))
    plain = read_model(save(tmp_path, "a.cnf", text_of(n, clauses, {}, False)))
    weighted = read_model(save(tmp_path, "b.cnf", text_of(n, clauses, weights, seed % 2)))
    total = sum(
        math.prod(weights.get((v + 1) * (1 if x[v] else -1), 1.0) for v in range(n)) for x in states
    )
    if not states:
        with pytest.raises(ValueError, match="no state of positive probability"):
            exact.log_partition(plain)
        return
    np.testing.assert_allclose(math.exp(exact.log_partition(plain)), len(states), rtol=1e-12)
    np.testing.assert_allclose(math.exp(exact.log_partition(weighted)), total, rtol=1e-12)
    shown = exact.marginals(plain, [1, 4])["p"]
    assert int((shown > 0).sum()) == len({(x[0], x[3]) for x in states})


def test_a_long_clause_is_divided(tmp_path):
    n, clause = 30, [v * (-1) ** v for v in range(1, 31)]
    found = read_model(save(tmp_path, "a.cnf", text_of(n, [clause], {}, True)))
    assert found.n_sites == 32
    np.testing.assert_allclose(math.exp(exact.log_partition(found)), 2**30 - 1, rtol=1e-12)
    x = exact.sample(found, 100, random_state=0)["x"].to_numpy().reshape(-1, 32)
    true = (x[:, :30] == (np.array(clause) > 0)).any(axis=1)
    assert true.all()
    only = read_model(
        save(tmp_path, "b.cnf", text_of(n, [clause] + [[-v] for v in clause[1:]], {}, 1))
    )
    assert math.exp(exact.log_partition(only)) == pytest.approx(1.0)


def test_solutions_are_uniform(tmp_path):
    clauses = [[1, -2, 3], [-1, 4], [2, 5, -6], [-3, -4, 6]]
    states = list(models_of(6, clauses))
    target = read_model(save(tmp_path, "a.cnf", text_of(6, clauses, {}, False)))
    x = exact.sample(target, 20_000, random_state=1)["x"].to_numpy().reshape(-1, 6)
    counts = {state: 0 for state in states}
    for row in x.tolist():
        counts[tuple(row)] += 1
    assert stats.chisquare(list(counts.values())).pvalue > 1e-3


def test_read_cnf(tmp_path):
    text = "c a\np cnf 3 2\nc p show 1 3 0\n1 -2\n0 2 3 0\nw 1 .5\nw -1 2 0\n%\n0\n"
    found = read_cnf(save(tmp_path, "a.cnf", text))
    assert found.clauses == [(1, -2), (2, 3)]
    assert (found.n_variables, found.projected) == (3, (1, 3))
    np.testing.assert_array_equal(found.weights, [[2, 0.5], [1, 1], [1, 1]])


BAD_CNF = [
    ("p cnf 2 1\n1 3 0", "found '3' where a literal of clause 1, or 0 .* from -2 to 2"),
    ("p cnf 2 1\n1 2", "the end of the file where a literal of clause 1"),
    ("p cnf 2 2\n1 2 0", "found '2' where the number of clauses .* is 1, as the file has"),
    ("p cnf 2 1\n0", "where clause 1 must stand; allowed is a clause that is not empty"),
    ("p cnf 1 0\nc p weight 1 0.3 0", "literal 1 has the weight 0.3 and -1 has none, .* 0.7"),
    ("p cnf 1 0\nw 1 0.3\nw 1 0.3", "line 3, .* literal 1 has a weight already"),
    ("p cnf 1 0\nw 1 -1", "a line of a weight is 'c p weight LITERAL WEIGHT 0'"),
    ("p cnf 1 0\nc p weight 1 0.3", "line 2, .* a line of a weight is"),
    ("p cnf 1 0\nw 2 1", "a line of a weight is .* from -1 to 1"),
    ("p cnf 1 0\nw 1 0\nw -1 0", "both literals of variable 1 have the weight 0"),
    ("p cnf 2 0\nc p show 1 3 0", "a projection ends with 0 and names variables from 1 to 2"),
    ("p cnf 2 0\nc p show 1", "a projection ends with 0"),
    ("p cnf 2 0\nc p show 1 1 0", "each once"),
    ("p wcnf 2 0\n", "found 'p wcnf', which begins a file of DIMACS, such as MaxSAT"),
    ("p edge 2 0\n", "a graph to colour; give format='col'"),
]


@pytest.mark.parametrize(("text", "message"), BAD_CNF)
def test_bad_formulas(tmp_path, text, message):
    with pytest.raises(io.FormatError, match=message):
        read_cnf(save(tmp_path, "a.cnf", text))


# ----------------------------------------------------------------- graphs


def test_colorings_are_counted(tmp_path):
    """Of a cycle of n nodes, (k - 1)**n + (-1)**n (k - 1) colourings are proper."""
    edges = [(1, 2), (2, 3), (3, 4), (4, 5), (5, 1)]
    lines = [f"e {i} {j}" for i, j in edges]
    both = [*lines, *(f"e {j} {i}" for i, j in edges)]
    for text in ("\n".join(lines), "\n".join(both), "n 1 3\n" + "\n".join(lines)):
        for k in (3, 4):
            path = save(tmp_path, "a.col", f"c x\np edge 5 5\n{text}\n")
            found = exact.log_partition(read_model(path, n_colors=k))
            assert round(math.exp(found)) == (k - 1) ** 5 - (k - 1)
    assert [*read_model(path, n_colors=3).names] == [1, 2, 3, 4, 5]


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ("p edge 2 1\ne 1 1\n", {"n_colors": 2}, "found '1' where a node .* two different nodes"),
        ("p edge 2 4\ne 1 2\n", {"n_colors": 2}, "found '4' where the number of edges .* 1 or 2,"),
        ("p edge 2 1\ne 1 3\n", {"n_colors": 2}, "from 1 to 2"),
        ("p edge 2 1\n1 2\n", {"n_colors": 2}, "where the beginning of an edge .* 'e'"),
        ("p edge 2 1\ne 1 2\n", {}, "n_colors is missing: .* --colors"),
        ("p edge 2 1\ne 1 2\n", {"n_colors": 1}, "n_colors is 1; it must be from 2"),
        ("p cnf 2 1\n1 2 0\n", {"n_colors": 2}, "a formula; give format='cnf'"),
    ],
)
def test_bad_graphs(tmp_path, text, options, message):
    with pytest.raises(ValueError, match=message):
        read_model(save(tmp_path, "a.col", text), **options)


def test_command_line(tmp_path, capsys):
    from sklsb.__main__ import main

    path, out = save(tmp_path, "a.col", "p edge 3 2\ne 1 2\ne 2 3\n"), tmp_path / "a"
    options = ["--out", f"{out}.MAR", "--pr", f"{out}.PR"]
    assert main(["marginals", str(path), "--colors", "3", *options]) == 0
    assert 10 ** io.read_result(f"{out}.PR") == pytest.approx(12)
    capsys.readouterr()
    assert main(["info", str(path)]) == 1
    assert "n_colors is missing" in capsys.readouterr().err


# ----------------------------------------------------------------- networks

ERGO = """3
2 3 2
0
1 0
2 0 1
/* Probabilities */
2  .25 .75
6  .1 .2 .7  .5 .25 .25
12 .1 .9 .2 .8 .3 .7 .4 .6 .5 .5 .6 .4
"""


def test_ergo(tmp_path):
    found = read_model(save(tmp_path, "a.erg", ERGO))
    expected = [0.75 * 0.25 * 0.6, 0.25 * 0.7 * 0.3]  # (1, 2, 0) and (0, 2, 0)
    np.testing.assert_allclose(np.exp(found.log_prob([[1, 2, 0], [0, 2, 0]])), expected)
    np.testing.assert_allclose(exact.log_partition(found), 0.0, atol=1e-12)
    names = "/* Names */\na b c\n/* Labels */\nn y  x y z  n y\n"
    path = save(tmp_path, "b.erg", ERGO + names)
    evidence = save(tmp_path, "b.evid", "/* Evidence */\n1\n 1 2\n")
    assert read_model(path).state_names == (("n", "y"), ("x", "y", "z"), ("n", "y"))
    seen = read_model(path, evidence=evidence)
    np.testing.assert_allclose(exact.log_partition(seen), np.log(0.25 * 0.7 + 0.75 * 0.25))


def test_libdai(tmp_path):
    text = "# two\n2\n\n2\n7 3\n2 3\n3\n0 .5\n1 2\n5 4\n\n1\n3\n3\n2\n0 1\n2 3\n"
    found = read_model(save(tmp_path, "a.fg", text))
    assert [*found.names] == [3, 7]
    table = np.zeros((3, 2))  # variable 7, of two values, runs fastest
    table[0, 0], table[0, 1], table[2, 1] = 0.5, 2.0, 12.0
    x = np.array(list(np.ndindex(3, 2)))
    np.testing.assert_allclose(np.exp(found.log_prob(x)), table.ravel())


BAD = [
    ("a.erg", ERGO.replace("1 0\n2 0 1", "1 1\n2 0 1"), "a parent of variable 1 .* each other"),
    ("a.erg", ERGO.replace("6  .1", "5  .1"), "found '5' where the number of entries of table 1"),
    ("a.erg", ERGO + "3", "found '3' where the end of the file must stand"),
    ("a.erg", ERGO + "/* Names */ a a b", "2 different names of 3 variables and 0 labels of 7"),
    ("a.fg", "1\n1\n0\n2\n1\n2 1\n", "found '2' where an index of factor 0 .* from 0 to 1"),
    ("a.fg", "1\n1\n0\n2\n2\n1 1\n1 2\n", "found '1' where an index .* each once"),
    ("a.fg", "2\n1\n0\n2\n1\n1 1\n1\n0\n3\n", "is 2, as variable 0 has in a factor above"),
    ("a.fg", "1\n2\n4 4\n2 2\n0\n", "a variable of factor 0 .* each variable once"),
    ("a.fg", "1\n5\n0 1 2 3 4\n99 99 99 99 99\n0\n", "a factor of at most 1048576 entries"),
    ("a.fg", "1\n1\n0\n2\n1\n1 -1\n", "not negative"),
    ("a.uai", "LIMID\n1\n2\n", "found 'LIMID', which begins a file of influence diagrams"),
    ("a.uai", "ID\n1\n2\n", "found 'ID', which begins a file of influence diagrams"),
    ("a.uai", "CAUSAL\n1\n2\n", "found 'CAUSAL', which begins .* structural causal models"),
    ("a.qh", "2 1\n0 2 1\n", "found '2' where a site must stand; .* from 0 to 1"),
    ("a.bqpjson", '{"version": 1}', "no problem of bqpjson: KeyError.'variable_domain'"),
]


@pytest.mark.parametrize(("name", "text", "message"), BAD)
def test_bad_networks(tmp_path, name, text, message):
    with pytest.raises(io.FormatError, match=message):
        read_model(save(tmp_path, name, text))


# ----------------------------------------------------------------- quadratic problems


def test_qubist_and_bqpjson(tmp_path):
    terms = [{"id": 6, "coeff": -0.35}, {"id": 2, "coeff": 0.5}]
    given = {
        "variable_domain": "spin",
        "variable_ids": [2, 6],
        "scale": 2.0,
        "offset": 0.3,
        "linear_terms": terms,
        "quadratic_terms": [{"id_tail": 2, "id_head": 6, "coeff": 0.25}],
    }
    x = np.array([[-1, -1], [1, -1], [-1, 1], [1, 1]])
    s, z = x, (1 + x) // 2
    qubist = read_model(save(tmp_path, "a.qh", "7 3\n2 2 .5\n6 6 -.35\n2 6 .25\n"), beta=2.0)
    assert [*qubist.names] == [2, 6]
    energy = [v[:, 0] * 0.5 - 0.35 * v[:, 1] + 0.25 * v[:, 0] * v[:, 1] for v in (s, z)]
    np.testing.assert_allclose(qubist.log_prob(x), -2.0 * energy[0])
    for domain, own in zip(("spin", "boolean"), energy, strict=True):
        path = save(tmp_path, "a.bqpjson", json.dumps(given | {"variable_domain": domain}))
        np.testing.assert_allclose(read_model(path).log_prob(x), -2.0 * (own + 0.3))
    given["linear_terms"] = [*terms, terms[0]]
    with pytest.raises(io.FormatError, match=r"the term .'id': 6.* is there twice"):
        read_model(save(tmp_path, "b.bqpjson", json.dumps(given)))


# ----------------------------------------------------------------- BIF written, pyAgrum


def bayes(rng):
    tables = {
        "c|b": rng.dirichlet([1, 1], size=(3, 2)),
        "a": rng.dirichlet([1, 1]),
        "b of a": rng.dirichlet([1, 1, 1], size=2),
    }
    states = {"a": ("no", "yes"), "b of a": ("x", "y, z", "(w)"), "c|b": ("0", "1")}
    return MarkovNetwork.from_tables(
        tables, {"b of a": ["a"], "c|b": ["b of a", "a"]}, state_names=states
    )


@pytest.mark.parametrize("seed", range(5))
def test_bif_is_written(tmp_path, seed):
    network = bayes(np.random.default_rng(seed))
    network.to_bif(tmp_path / "a.bif")
    found = MarkovNetwork.from_bif(tmp_path / "a.bif")
    assert [*found.names] == [*network.names]
    assert found.state_names == network.state_names
    for (scope, table), (own, given) in zip(found.factors, network.factors, strict=True):
        assert scope == own
        np.testing.assert_array_equal(table, given)


def test_what_bif_cannot_hold(tmp_path):
    path = tmp_path / "a.bif"
    with pytest.raises(TypeError, match="is made of factors, not of conditional tables"):
        MarkovNetwork([2], [((0,), [0.5, 0.5])]).to_bif(path)
    for names, states in ((['a"'], "ny"), (["a"], ("1", "")), (["a"], (1, "1")), ([1, "1"], "ny")):
        tables = {name: [0.5, 0.5] for name in names}
        network = MarkovNetwork.from_tables(tables, state_names=dict.fromkeys(names, states))
        with pytest.raises(ValueError, match="is empty, is there twice, or has a quotation mark"):
            network.to_bif(path)
    assert not path.exists()


def test_from_pyagrum(tmp_path):
    gum = pytest.importorskip("pyagrum", reason="pyAgrum is not installed")
    gum.initRandom(3)
    bn = gum.fastBN("a{yes|no}->c[3]<-b{x|y|z}; d[1,4]->c->e; a->e")
    network = MarkovNetwork.from_pyagrum(bn)
    assert network.state_names[network.names.index("d")] == ("1", "2", "3", "4")
    rng = np.random.default_rng(0)
    for x in rng.integers(0, network.cardinalities, (50, network.n_sites)):
        state = {name: int(v) for name, v in zip(network.names, x, strict=True)}
        np.testing.assert_allclose(
            np.exp(network.log_prob(x)),
            bn.jointProbability(_instantiation(gum, bn, state)),
            rtol=1e-12,
        )
    network.to_bif(tmp_path / "a.bif")
    again = gum.loadBN(str(tmp_path / "a.bif"))
    for name in bn.names():
        assert again.variable(name).labels() == bn.variable(name).labels()
        other = again.cpt(name).reorganize(bn.cpt(name).names)
        np.testing.assert_allclose(other.toarray(), bn.cpt(name).toarray(), atol=1e-7)  # floats
    bn.cpt("e").fillWith(0)
    with pytest.raises(ValueError, match="a row of the table of 'e' is 0 throughout"):
        MarkovNetwork.from_pyagrum(bn)


def _instantiation(gum, bn, state):
    found = gum.Instantiation()
    for name, value in state.items():
        found.add(bn.variable(name))
        found.chgVal(name, value)
    return found


class Tensor:
    """As of pyAgrum: the first variable is the last axis."""

    def __init__(self, variables, array):
        self.variables, self.array = variables, np.array(array)

    def variablesSequence(self):
        return self.variables

    def toarray(self):
        return self.array


class Variable:
    def __init__(self, name, labels):
        self.name, self.labels = lambda: name, lambda: labels


class Net:
    def __init__(self):
        a, b = Variable("a", ("y", "n")), Variable("b", ("0", "1", "2"))
        self.variables = [b, a]
        self.tensors = {
            "a": Tensor([a], [0.25, 0.75]),
            "b": Tensor([b, a], [[0.1, 0.2, 0.7], [0.5, 0.25, 0.25]]),
        }
        self.nodes, self.variable = lambda: [0, 1], lambda i: self.variables[i]
        self.cpt = lambda name: self.tensors[name]


def test_from_pyagrum_by_its_methods():
    bn = Net()
    network = MarkovNetwork.from_pyagrum(bn)
    assert [*network.names] == ["b", "a"]
    np.testing.assert_allclose(np.exp(network.log_prob([[2, 0], [0, 1]])), [0.25 * 0.7, 0.75 * 0.5])
    bn.tensors["b"].array[1] = 0.0
    with pytest.raises(ValueError, match="a row of the table of 'b' is 0 throughout"):
        MarkovNetwork.from_pyagrum(bn)
    with pytest.raises(TypeError, match=r"bn is of type int; give a pyagrum\.BayesNet"):
        MarkovNetwork.from_pyagrum(3)
    bn.isDecisionNode = None
    with pytest.raises(TypeError, match=r"bn is of type Net; give .* Influence diagrams"):
        MarkovNetwork.from_pyagrum(bn)


# ----------------------------------------------------------------- files that pyAgrum reads

NET = """net {}
node a {states = ("y" "n"); label = "decision d";}
node b {states = ("y" "n" "z");}
node c {states = ("y" "n");}
potential (a) {data = (0.25 0.75);} % potential (a) {data = (1 0);}
potential (b | a) {data = ((0.1 0.2 0.7) (0.5 0.25 0.25));}
potential (c | b a) {data = (((0.1 0.9) (0.2 0.8)) ((0.3 0.7) (0.4 0.6)) ((0.5 0.5) (0.6 0.4)));}
"""
TENTHS = [".1", ".9", ".2", ".8", ".3", ".7", ".4", ".6", ".5", ".5", ".6", ".4"]
ROWS = [
    ("a", [], ["0.25", "0.75"]),
    ("b", ["a"], ["0.1", "0.2", "0.7", "0.5", "0.25", "0.25"]),
    (
        "c",
        ["b", "a"],
        ["0.1", "0.9", "0.2", "0.8", "0.3", "0.7", "0.4", "0.6", "0.5", "0.5", "0.6", "0.4"],
    ),
]
STATES = {"a": "yn", "b": "ynz", "c": "yn"}


def xmlbif(rows, kind="nature"):
    variables = "".join(
        f'<VARIABLE TYPE="{kind}"><NAME>{name}</NAME>'
        + "".join(f"<OUTCOME>{state}</OUTCOME>" for state in own)
        + "</VARIABLE>"
        for name, own in STATES.items()
    )
    tables = "".join(
        f"<DEFINITION><FOR>{child}</FOR>"
        + "".join(f"<GIVEN>{p}</GIVEN>" for p in parents)
        + f"<TABLE>{' '.join(words)} <!-- 3 --></TABLE></DEFINITION>"
        for child, parents, words in rows
    )
    return f'<?xml version="1.0"?><BIF><NETWORK><NAME>x</NAME>{variables}{tables}</NETWORK></BIF>'


def xdsl(rows, tag="cpt", app="GeNIe"):
    nodes = "".join(
        f'<{tag} id="{child}">'
        + "".join(f'<state id="{state}"/>' for state in STATES[child])
        + (f"<parents>{' '.join(parents)}</parents>" if parents else "")
        + f"<probabilities>{' '.join(words)}</probabilities></{tag}>"
        for child, parents, words in rows
    )
    return (
        f'<?xml version="1.0"?><smile version="1.0" id="x"><nodes>{nodes}</nodes>'
        f'<extensions><genie app="{app}" name="x"></genie></extensions></smile>'
    )


def dsl(rows, kind="CPT"):
    nodes = "".join(
        f'node {child} {{ TYPE = {kind}; HEADER = {{ ID = {child}; NAME = "{child}"; }}; '
        f"PARENTS = ({', '.join(parents)}); DEFINITION = {{ "
        f"NAMESTATES = ({', '.join(STATES[child])}); "
        f"PROBABILITIES = ({', '.join(words)}); }}; }};\n"
        for child, parents, words in rows
    )
    return f"net x\n{{\n{nodes}}};\n"


def net(rows):
    tables = "".join(
        f"potential ({child} | {' '.join(parents)}) {{data = ({' '.join(words)});}}\n"
        for child, parents, words in rows
    )
    return NET[: NET.index("potential")] + tables


def test_tables_of_files():
    from sklsb.io import agrum

    for given in (agrum._net(NET), agrum._net(net(ROWS)), agrum._dsl(dsl(ROWS))):
        assert list(given) == ROWS
    assert list(agrum._bif(xmlbif(ROWS))) == [(c, p, w) for c, p, w in ROWS]
    assert list(agrum._xdsl(xdsl(ROWS))) == ROWS
    reversed_ = [(c, p[::-1], w) for c, p, w in ROWS]
    assert list(agrum._xdsl(xdsl(ROWS, app="aGrUM 3.3.1"))) == reversed_


@pytest.fixture
def gum():
    return pytest.importorskip("pyagrum", reason="pyAgrum is not installed")


@pytest.mark.parametrize(
    ("name", "text"),
    [("a.net", NET), ("b.xmlbif", xmlbif(ROWS)), ("c.xdsl", xdsl(ROWS)), ("d.dsl", dsl(ROWS))],
)
def test_files_read_by_pyagrum(tmp_path, gum, name, text):
    for suffix in ("", ".txt"):
        found = read_model(save(tmp_path, name + suffix, text), "pyagrum" if suffix else None)
        sites = [[*found.names].index(v) for v in "abc"]
        assert [found.state_names[i] for i in sites] == [("y", "n"), ("y", "n", "z"), ("y", "n")]
        x = np.zeros((1, 3), int)
        x[0, sites] = [1, 2, 0]  # c is y with probability 0.6
        assert float(np.exp(found.log_prob(x))[0]) == pytest.approx(0.75 * 0.25 * 0.6, rel=1e-14)


SHORT = [*ROWS[:1], ("b", ["a"], ROWS[1][2][:3]), ROWS[2]]
LONG = [*ROWS[:1], ("b", ["a"], ROWS[1][2] * 2), ROWS[2]]
BAD_NUMBER = [("a", [], ["x", "0.75"]), *ROWS[1:]]


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.net", net(SHORT), r"the table of 'b' given \['a'\] has 3 entries, of 6"),
        ("a.net", net(LONG), "the table of 'b' .* has 12 entries, of 6"),
        ("a.net", net(ROWS[:2]), "there is no table of 'c'"),
        ("a.net", net([*ROWS, ROWS[1]]), "there are two tables of 'b'"),
        ("a.net", NET + 'decision d {states = ("y" "n");}', "a 'decision d', which is no table"),
        ("a.net", NET + "utility u {}", "a 'utility u'"),
        ("a.net", "net {}\nnode a {states = ();", "pyAgrum does not read it: "),
        ("a.dsl", dsl(SHORT), "the table of 'b' .* has 3 entries, of 6"),
        ("a.dsl", dsl(ROWS, "LIST"), "'a' is a node of type LIST; only CPT is read"),
        ("a.xdsl", xdsl(ROWS, "decision"), "'a' is a node of type decision; only cpt is read"),
        ("a.xdsl", xdsl(BAD_NUMBER), "the table of 'a' has an entry that is no number"),
        ("a.xmlbif", xmlbif([*ROWS, ROWS[1]]), "there are two tables of 'b'"),
        ("a.xmlbif", xmlbif(BAD_NUMBER), "the table of 'a' has an entry that is no number"),
        ("a.xmlbif", xmlbif(ROWS[:2]), "there is no table of 'c'"),
        ("a.xmlbif", xmlbif(ROWS, "decision"), "'a' is of type decision, not nature"),
        ("a.xmlbif", xmlbif(ROWS)[:-9], "no XML: "),
    ],
)
def test_what_pyagrum_would_read_wrong(tmp_path, gum, name, text, message):
    with pytest.raises(io.FormatError, match=message):
        read_model(save(tmp_path, name, text))


def test_without_pyagrum(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyagrum", None)
    with pytest.raises(ImportError, match=r"a\.net is read by pyAgrum; run `pip install pyagrum`"):
        read_model(save(tmp_path, "a.net", NET))
