"""Errors planted in prepared plans, sensitivities, conditional tables and evidence."""

import numpy as np
import pytest
from planted import Mutant, both_tests

PREPARED, PASSES, TABLES = "exact/prepared.py", "exact/elimination/passes.py", "targets/_tables.py"
RAIN, WET = [0.8, 0.2], [[0.9, 0.1], [0.2, 0.8]]
SHOES = [[0.7, 0.3], [0.4, 0.6]]


def network(package, rain=RAIN):
    names, tables = ["rain", "wet", "shoes"], [((0,), rain), ((0, 1), WET), ((1, 2), SHOES)]
    return package.MarkovNetwork([2, 2, 2], tables, names)


def posterior(rain=RAIN, wet=(0.0, 1.0), shoes=(1.0, 1.0)):
    """Return p(rain | evidence) by sums over all states."""
    p = np.einsum("r,rw,ws,w,s->r", rain, WET, SHOES, wet, shoes)
    return p / p.sum()


def check_questions(package):
    plan = package.exact.prepare(network(package))
    for _ in range(2):
        found = plan.marginals({"wet": 1})["rain"]
        np.testing.assert_allclose(found, posterior(), err_msg="given wet grass")
        found = plan.marginals({"wet": {0: 0.5, 1: 1.0}})["rain"]
        np.testing.assert_allclose(found, posterior(wet=(0.5, 1.0)), err_msg="given likelihoods")
        found = plan.marginals(None, ["rain"])["rain"]
        np.testing.assert_allclose(found, RAIN, err_msg="given nothing")
    z = np.einsum("r,rw,w->", RAIN, WET, (0.5, 2.0))
    log_z = plan.log_partition({"wet": {0: 0.5, 1: 2.0}})
    assert log_z == pytest.approx(np.log(z)), "log Z has the likelihoods"


def check_other_tables(package):
    plan = package.exact.prepare(network(package))
    found = plan.with_tables([[0.5, 0.5], WET, SHOES]).marginals({"wet": 1})["rain"]
    np.testing.assert_allclose(found, posterior([0.5, 0.5]), err_msg="given other tables")
    certain = package.exact.prepare(network(package, [1.0, 0.0]))
    found = certain.with_tables([RAIN, WET, SHOES]).marginals({"wet": 1})["rain"]
    np.testing.assert_allclose(found, posterior(), err_msg="values that were excluded are back")


def check_sensitivity(package):
    plan = package.exact.prepare(network(package))
    found = plan.sensitivity({"rain": 1}, {"shoes": 1})[0]
    seen = {"wet": (1.0, 1.0), "shoes": (0.0, 1.0)}
    ends = [posterior([0.8, 0.2 + step], **seen)[1] for step in (1e-6, -1e-6)]
    slope = (ends[0] - ends[1]) / 2e-6
    assert found[1] == pytest.approx(slope, abs=1e-7), "derivatives are those of the posterior"
    tables = {"rain": RAIN, "wet": WET}
    made = package.MarkovNetwork.from_tables(tables, {"wet": ["rain"]})
    table = package.exact.prepare(made).sensitivity({"wet": 1}).to_frame()
    (scaled,) = table["scaled"][(table["parents"] == "rain=0") & (table["value"] == 1)]
    assert scaled == pytest.approx(RAIN[0]), "rows keep their sum"


def check_tables(package):
    tables = {
        "rain": {"no": 0.8, "yes": 0.2},
        "wet": {"no": {"no": 0.9, "yes": 0.1}, "yes": {"yes": 0.8, "no": 0.2}},
    }
    found = package.MarkovNetwork.from_tables(tables, {"wet": ["rain"]})
    np.testing.assert_array_equal(found.factors[1][1], WET, err_msg="rows by name")
    with pytest.raises(ValueError, match="sums to"):
        package.MarkovNetwork.from_tables({"rain": {"no": 0.8, "yes": 0.3}})


def check_totals(package):
    tables = {"no": {"dry": 8, "wet": 2, "all": 10}, "yes": {"dry": 1, "wet": 4, "all": 5}}
    with pytest.raises(ValueError, match=r"'all', the sum of the others"):
        package.MarkovNetwork.from_tables(
            {"rain": {"no": 0.8, "yes": 0.2}, "wet": tables}, {"wet": ["rain"]}, normalize=True
        )


def check_clashes(package):
    names = ["rain", "wet", "shoes"]
    tables = [((0,), RAIN), ((0, 1), [[1.0, 0.0], [0.2, 0.8]]), ((1, 2), SHOES)]
    plan = package.exact.prepare(package.MarkovNetwork([2, 2, 2], tables, names))
    with pytest.raises(ValueError, match=r"zero: {'rain': 0, 'wet': 1} is impossible together"):
        plan.marginals({"shoes": 0, "rain": 0, "wet": 1})


def check_soft_evidence(package):
    soft = network(package).condition({"wet": {0: 0.5, 1: 2.0}})
    hard = network(package).condition({"wet": 1})
    x = [1, 1, 0]
    gain = float(soft.log_prob(x) - hard.log_prob(x))
    assert gain == pytest.approx(np.log(2.0)), "log p gains the likelihood of the value"


def check_slips(package):
    tables = {"rain": {"no": 0.8, "yes": 0.2}}
    rows = {"no": {"wet": 0.1, "dry": 0.9}, "yes": {"wat": 0.3, "dry": 0.7}}
    with pytest.raises(ValueError, match=r"wat.*did you mean 'wet'"):
        package.MarkovNetwork.from_tables({**tables, "grass": rows}, {"grass": "rain"})
    tables["river"] = np.transpose([[0.9, 0.1], [0.7, 0.3]])
    with pytest.raises(ValueError, match="sums to 1 in each column"):
        package.MarkovNetwork.from_tables(tables, {"river": "rain"}, normalize=True)


def check_other_numbers(package):
    made = package.MarkovNetwork([2], [((0,), [1, 3])], ["a"], [[1, 0]])
    with pytest.warns(package.exceptions.ModelWarning, match="0 means the value 1 of 'a'"):
        made.log_prob([0])


def check_columns_beside_counts(package):
    import pandas as pd

    columns = {"rain": ["no", "yes"], "dry": [8, 1], "wet": [2, 9], "dose": [2.5, 1.5]}
    table = pd.DataFrame(columns).set_index("rain").rename_axis(columns="grass")
    with pytest.warns(package.exceptions.ModelWarning, match="'dose', which normalize=True takes"):
        package.MarkovNetwork.from_tables(
            {"rain": {"no": 1, "yes": 1}, "grass": table}, normalize=True
        )


def check_states_by_label(package):
    import pandas as pd

    made, state = network(package), pd.Series({"shoes": 1, "rain": 0, "wet": 0})
    expected = np.log(RAIN[0] * WET[0][0] * SHOES[0][1])
    assert made.log_prob(state) == pytest.approx(expected), "labels of a Series"


def check_labelled_tables(package):
    import pandas as pd

    turned = pd.DataFrame(WET, ["no", "yes"], ["no", "yes"]).iloc[::-1, ::-1]
    values = [["no", "yes"]] * 2
    made = package.MarkovNetwork([2, 2], [(["rain", "wet"], turned)], ["rain", "wet"], values)
    np.testing.assert_array_equal(made.factors[0][1], WET, err_msg="labels of a table")


def check_axes_of_states(package):
    import xarray as xr

    made = network(package)
    x = xr.DataArray([[0, 1, 0]], dims=("draw", "site"), coords={"site": ["wet", "shoes", "rain"]})
    assert made.log_prob(x) == pytest.approx(made.log_prob([[0, 0, 1]])), "labels of an axis"
    assert made.log_prob(x.T) == pytest.approx(made.log_prob([[0, 0, 1]])), "labels of an axis"


MUTANTS = {
    "tables by position": Mutant(
        "targets/_evidence.py",
        "table = ordered(table, names, name)",
        "pass",
        check_labelled_tables,
        "labels of a table",
    ),
    "states of xarray by position": Mutant(
        "targets/_names.py",
        "given = given.sel({dim: wanted})",
        "pass",
        check_axes_of_states,
        "labels of an axis",
    ),
    "messages of earlier evidence kept": Mutant(
        PASSES, "marks[bucket] = True", "marks[bucket] = False; break", check_questions, "given"
    ),
    "likelihoods scaled in log Z": Mutant(
        PREPARED,
        "return elimination.log_sum + log_divisor",
        "return elimination.log_sum",
        check_questions,
        "log Z has the likelihoods",
    ),
    "largest entries of tables left out of log Z": Mutant(
        "exact/elimination/plan.py",
        "shift=shift, barren_shift",
        "shift=0.0, barren_shift",
        check_questions,
        "log Z has the likelihoods",
    ),
    "excluded values that never come back": Mutant(
        PREPARED,
        "if flat[self._sources.struck].any():",
        "if False:",
        check_other_tables,
        "excluded",
    ),
    "a derivative that forgets the evidence": Mutant(
        "exact/sensitivity.py",
        "np.exp(a - log_z) - np.exp(log_p + b - log_z)",
        "np.exp(a - log_z)",
        check_sensitivity,
        "derivatives",
    ),
    "rows that do not keep their sum": Mutant(
        "exact/sensitivity.py",
        "(slope - (table * slope).sum(axis=-1, keepdims=True))",
        "slope",
        check_sensitivity,
        "rows keep their sum",
    ),
    "totals taken for values": Mutant(TABLES, "1e-9) - 1.0)]", "1e-9) + 1.0)]", check_totals, "."),
    "the commonest value as the misspelt one": Mutant(
        TABLES, "[::-1].argmin())", "[::-1].argmax())", check_slips, "."
    ),
    "columns that need not sum to 1": Mutant(
        TABLES,
        "columns, rows = result.sum(axis=tuple(range(result.ndim - 1))), ",
        "columns, rows = result.sum(axis=-1), ",
        check_slips,
        ".",
    ),
    "positions that are other names": Mutant(
        "targets/_evidence.py", "not in (None, place):", "is None:", check_other_numbers, "."
    ),
    "means taken for counts": Mutant(
        TABLES, "broken.sum() == 1", "broken.sum() == 2", check_columns_beside_counts, "."
    ),
    "a Series in the order given": Mutant(
        "targets/base.py",
        "== self.n_sites > 0:",
        "== self.n_sites < 0:",
        check_states_by_label,
        "labels",
    ),
    "evidence that clashes with nothing named": Mutant(
        "targets/_evidence.py",
        "left = rest if impossible(rest) else left",
        "left = left",
        check_clashes,
        ".",
    ),
    "rows of tables in the order of the first": Mutant(
        TABLES,
        "result[(*at, _place(values, child, value, child))] = p",
        "result[(*at, list(row).index(value))] = p",
        check_tables,
        "rows",
    ),
    "likelihoods of all values alike": Mutant(
        "targets/_evidence.py",
        "weights[place] = float(likelihood)",
        "weights[place] = float(likelihood > 0)",
        check_soft_evidence,
        "gains",
    ),
}


test_a_planted_error_is_found, test_the_package_itself_passes = both_tests(MUTANTS)
