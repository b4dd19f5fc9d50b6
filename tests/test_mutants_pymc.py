"""Errors planted in the step for models of PyMC."""

import importlib.util
from contextlib import contextmanager

import numba
import pytest
from planted import Mutant, anew, both_tests

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("pymc") is None,
    reason="PyMC is optional, and needs Python 3.12 or later",
)


@contextmanager
def steps(name="test_discrete_step"):
    """Tests, imported anew; PyTensor cannot do without numba's compiler."""
    plain, numba.config.DISABLE_JIT = numba.config.DISABLE_JIT, False
    try:
        yield anew(name)
    finally:
        numba.config.DISABLE_JIT = plain


def check_balance(package):
    with steps() as tests, pytest.MonkeyPatch.context() as patch:
        tests.test_the_conditional_law_is_invariant(patch, tests.regression, "lsb")


def check_supports(package):
    with steps() as tests, pytest.MonkeyPatch.context() as patch:
        tests.test_the_conditional_law_is_invariant(patch, tests.supports, "colours")


def check_slices(package):
    with steps() as tests:
        tests.test_counts_without_bounds("geometric", 1)


def check_beside(package):
    with steps() as tests:
        tests.test_slices_beside_few_values("poisson")


def check_couplings(package):
    with steps() as tests:
        for name in ("product", "index by sums", "how many ones", "added by repeated indices"):
            tests.test_couplings_are_found(name)


def check_data(package):
    with steps() as tests:
        tests.test_sizes_bounds_and_zeros_of_present_data_are_used()


def check_sums(package):
    with steps() as tests:
        tests.test_sums_over_sites_are_those_of_enumeration(tests.several_values, 5)


def check_gradient(package):
    import sklsb._kernels.elimination.sums  # noqa: F401 (while kernels run as plain Python)

    with steps() as tests:
        tests.test_a_gradient_sees_no_element_that_is_not_taken()


def check_places(package):
    with steps() as tests:
        tests.test_sums_over_sites_are_those_of_enumeration(tests.crowd, 0)


def check_draws(package):
    import sklsb._kernels.elimination.sums  # noqa: F401 (while kernels run as plain Python)

    with steps() as tests:
        tests.test_the_block_is_drawn_from_the_conditional_law(tests.chain, "with_nuts")


def check_betrayal(package):
    with steps() as tests:
        tests.test_what_an_unknown_operation_hides_is_found_while_drawing()


def check_networks(package):
    with steps("test_pymc") as tests:
        for make, n_factors in ((tests.allocations, 60), (tests.regression, 65)):
            tests.test_models_that_are_sums_of_tables_become_networks(
                make, "PyMCNetwork", n_factors
            )


MUTANTS = {
    "pairs of a polynomial that keep what each site does alone": Mutant(
        "pymc/tables.py",
        "- start - alone[i][1] - alone[j][1]",
        "- start - alone[i][1]",
        check_networks,
        "PyMCTarget",
    ),
    "all drawn at once with the other sites of the block at their lowest values": Mutant(
        "pymc/moves.py",
        "if alone and self.n_colours == 1",
        "if self.n_colours == 1",
        check_beside,
        "Not equal to tolerance",
    ),
    "changes accepted whatever lies around them": Mutant(
        "pymc/moves.py",
        "np.exp(min(0.0, log_z - np.logaddexp.reduce(new)))",
        "1.0",
        check_balance,
        "Not equal to tolerance",
    ),
    "values that a site does not have": Mutant(
        "pymc/moves.py",
        "        log_p[values[:, None] >= k] = -np.inf\n",
        "",
        check_supports,
        "an impossible state",
    ),
    "slices that do not shrink to the left": Mutant(
        "pymc/moves.py",
        "(new, right) if new < start else (left, new)",
        "(start, right) if new < start else (left, new)",
        check_slices,
        ".",
    ),
    "elements of two arrays that see what the first sees": Mutant(
        "pymc/graph.py",
        "a.sets[pairs // n] + b.sets[pairs % n]",
        "a.sets[pairs // n]",
        check_couplings,
        ".",
    ),
    "sizes that hide what they depend on": Mutant(
        "pymc/graph.py",
        "isinstance(v.type, TensorType) and _varies(",
        "_varies is None and _varies(",
        check_couplings,
        ".",
    ),
    "data as they were": Mutant(
        "pymc/block.py",
        "            self._read(point)\n",
        "            pass\n",
        check_data,
        ".",
    ),
    "sums without what sees no site": Mutant(
        "pymc/summed.py",
        "last += numbers.at[0, seen].tolist()",
        "pass",
        check_sums,
        ".",
    ),
    "elements that are made as the first one is": Mutant(
        "pymc/numbers.py",
        "np.broadcast_to(i, shape).ravel()[one]",
        "np.broadcast_to(i, shape).ravel()[0 * one]",
        check_places,
        ".",
    ),
    "slopes of sums that do not ask how likely a term is": Mutant(
        "_kernels/elimination/sums.py",
        "slope[parts[p]] += whole * share[t]",
        "slope[parts[p]] += whole",
        check_gradient,
        ".",
    ),
    "messages that are one though they differ in a term": Mutant(
        "pymc/summed.py",
        "key = tuple((v, tuple(sorted(term))) for v, term in terms if -1 not in term)",
        "key = tuple((v, tuple(sorted(term))) for v, term in [*terms][:1] if -1 not in term)",
        check_sums,
        ".",
    ),
    "sums that never have slopes": Mutant(
        "_kernels/elimination/sums.py",
        "    if slope.size == 0:\n",
        "    if slope.size >= 0:\n",
        check_gradient,
        ".",
    ),
    "draws of the block that take the first value more often": Mutant(
        "_kernels/elimination/sums.py",
        "left >= share[t]",
        "left >= share[t] + 0.1",
        check_draws,
        ".",
    ),
    "no check of what was probed": Mutant(
        "pymc/step.py",
        "check = block.vague or self.n_steps < _FIRST_CHECKS or self.n_steps % _CHECK_EVERY == 0",
        "check = False",
        check_betrayal,
        "DID NOT WARN",
    ),
}


test_a_planted_error_is_found, test_the_package_itself_passes = both_tests(
    MUTANTS,
    lambda check: [pytest.mark.filterwarnings("ignore:Numba will use object mode")],
)
