"""Balancing functions against the textbook g(t), finite differences and limits."""

import copy
import pickle

import numpy as np
import pytest
from scipy.special import log1p
from sklearn.base import clone

from sklsb import (
    BalancingFunction,
    Barker,
    Ising,
    Lipschitz,
    LSBSampler,
    Max,
    Min,
    Mixture,
    Network,
    Sqrt,
    balancing,
    testing,
)
from sklsb.balancing import LearnableFunction
from sklsb.balancing.functions import FIXED, Tabulated, get_balancing


def moved(function, seed=0, scale=0.3):
    """The same function away from its initialisation."""
    rng = np.random.default_rng(seed)
    return function.with_theta(function.theta + scale * rng.standard_normal(function.theta.size))


class Rounded(BalancingFunction):
    """A user's function: one method."""

    def even_part(self, u):
        return -0.5 * (np.hypot(1.0, u) - 1.0)


FIXED_FUNCTIONS = {name: cls() for name, cls in FIXED.items()}
LIPSCHITZ = {
    f"{bound} {architecture}": Lipschitz(bound, architecture)
    for bound in (0.5, 1.5)
    for architecture in ("knots", "network")
}
LEARNABLE = {
    "mixture": Mixture(),
    **{f"lipschitz {name}": function for name, function in LIPSCHITZ.items()},
    **{f"lipschitz {name} moved": moved(f, 3, 0.5) for name, f in LIPSCHITZ.items()},
    "mixture moved": moved(Mixture(), 1, 2.0),
    "network": Network(),
    "network moved": moved(Network(), 2),
}
EVERY = {**FIXED_FUNCTIONS, **LEARNABLE, "user": Rounded()}
every = pytest.mark.parametrize("function", EVERY.values(), ids=EVERY)
learnable = pytest.mark.parametrize("function", LEARNABLE.values(), ids=LEARNABLE)

MODERATE = np.concatenate([np.linspace(-30, 30, 601), [1e-12, -1e-12, 0.0]])
TEXTBOOK = {
    "barker": lambda t: t / (1 + t),
    "sqrt": np.sqrt,
    "min": lambda t: np.minimum(1, t),
    "max": lambda t: np.maximum(1, t),
}


# ----------------------------------------------------------------- closed forms


@pytest.mark.parametrize("name", TEXTBOOK)
def test_fixed_functions_are_the_textbooks(name):
    t = np.exp(MODERATE)
    np.testing.assert_allclose(
        np.exp(FIXED_FUNCTIONS[name].log_g(MODERATE)), TEXTBOOK[name](t), rtol=1e-14
    )


def test_mixture_is_the_weighted_sum_in_plain_t():
    theta = np.array([0.3, -1.0, 2.0, 0.1])
    weights = np.exp(theta) / np.exp(theta).sum()
    t = np.exp(MODERATE)
    wanted = sum(w * g(t) for w, g in zip(weights, TEXTBOOK.values(), strict=True))
    mixture = Mixture(theta)
    np.testing.assert_allclose(np.exp(mixture.log_g(MODERATE)), wanted, rtol=1e-13)
    np.testing.assert_allclose(mixture.weights, weights, rtol=1e-15)
    np.testing.assert_array_equal(Mixture().weights, np.full(4, 0.25))


def literal_mlp(theta, t):
    """Hidden units one by one, in plain t."""
    w1, b1, w2, b2 = theta[:10], theta[10:20], theta[20:30], theta[30]
    out = b2
    for k in range(10):
        out += w2[k] * max(0.0, w1[k] * (t / (1 + t) - 0.5) + b1[k])
    return float(log1p(np.exp(out)))


@pytest.mark.parametrize("seed", [None, 0, 1])
def test_network_is_its_formula_in_plain_t(seed):
    function = Network() if seed is None else moved(Network(), seed)
    for u in np.linspace(-12, 12, 25):
        t = np.exp(u)
        one, other = literal_mlp(function.theta, t), t * literal_mlp(function.theta, 1 / t)
        assert np.exp(function.log_g(u)) == pytest.approx((one + other) / 2, rel=1e-11)


def test_parameter_counts():
    assert Mixture().theta.shape == (4,)
    assert Network().theta.shape == (31,)


# ----------------------------------------------------------------- initial functions


def test_network_starts_near_the_square_root():
    h = Network().even_part(np.linspace(-8, 8, 1601))
    assert np.abs(h).max() < 0.1


def test_every_network_starts_from_the_same_parameters():
    function, again = Network(), Network()
    np.testing.assert_array_equal(function.theta, again.theta)
    assert function.theta is not again.theta
    with pytest.raises(ValueError, match="read-only"):
        again.theta[0] += 1.0


# ----------------------------------------------------------------- balancing, evenness, log domain


@every
def test_balancing_condition(function):
    u = np.concatenate([MODERATE, [45.0, 700.0, 1e4]])
    for g in (function, function.tabulated()):
        difference = g.log_g(u) - g.log_g(-u)
        np.testing.assert_allclose(difference, u, rtol=0, atol=4e-16 * (1 + np.abs(u).max()))
        # Even to the last bit, which is what makes the chain exactly reversible.
        np.testing.assert_array_equal(g.even_part(u), g.even_part(-u))


@every
@pytest.mark.parametrize("u", [700.0, -700.0, 1e4, -1e4, 1e300, -1e300])
def test_far_out_everything_is_finite(function, u):
    for g in (function, function.tabulated()):
        assert np.isfinite(g.even_part(u))
        assert np.isfinite(g.log_g(u))


@pytest.mark.parametrize("u", [700.0, 1e4])
def test_log_domain_values(u):
    assert Barker().log_g(u) == 0.0
    assert Barker().log_g(-u) == -u
    assert Sqrt().log_g(u) == u / 2
    assert Sqrt().log_g(-u) == -u / 2
    assert Min().log_g(u) == 0.0
    assert Min().log_g(-u) == -u
    assert Max().log_g(u) == u
    assert Max().log_g(-u) == 0.0
    assert Mixture().log_g(u) == pytest.approx(u + np.log(0.25))


@every
def test_impossible_moves_have_no_weight(function):
    for g in (function, function.tabulated()):
        assert g.log_g(-np.inf) == -np.inf
        np.testing.assert_array_equal(
            g.log_g([-np.inf, 0.0, -np.inf]) == -np.inf, [True, False, True]
        )


@pytest.mark.parametrize("tabulated", [False, True])
@pytest.mark.parametrize(
    ("function", "limit"),
    [
        (Barker(), 0.0),
        (Min(), 0.0),
        (Sqrt(), np.inf),
        (Max(), np.inf),
        (Mixture(), np.inf),
        (Network(), np.inf),
    ],
    ids=repr,
)
def test_limit_for_a_certain_gain(function, limit, tabulated):
    """g(inf): out of an impossible state every function has its textbook limit."""
    g = function.tabulated() if tabulated else function
    assert g.log_g(np.inf) == pytest.approx(limit, abs=1e-12)


@every
def test_shapes_and_inputs(function):
    for method in (function.even_part, function.log_g, function.tabulated().log_g):
        assert np.shape(method(0.5)) == ()
        assert method(np.zeros((2, 3, 4))).shape == (2, 3, 4)
        assert method(np.empty((0, 3))).shape == (0, 3)
        assert method([1, 2]).dtype == np.float64
        values = method(np.array([[1.0, -2.0], [3.0, 40.0]], order="F"))
        assert values[1, 0] == method(3.0)
        given = np.array([1.0, -2.0, -np.inf])
        given.flags.writeable = False
        method(given[:2])
        np.testing.assert_array_equal(given, [1.0, -2.0, -np.inf])


# ----------------------------------------------------------------- tables


@pytest.mark.parametrize("name", FIXED)
def test_table_of_a_fixed_function(name):
    function = FIXED_FUNCTIONS[name]
    u = np.concatenate([np.linspace(0, 40, 40001), [700.0, 1e4]])
    error = np.abs(function.tabulated().even_part(u) - function.even_part(u))
    assert error.max() <= 1e-5


@pytest.mark.parametrize("name", ["mixture", "network"])
def test_table_of_a_learnable_function(name):
    function = LEARNABLE[name]
    u = np.linspace(0, 100, 40001)
    error = np.abs(function.tabulated().even_part(u) - function.even_part(u))
    # The kinks of rectified units fall between knots.
    assert error.max() <= (0.04 if name == "network" else 1e-3)


@every
def test_table_holds_the_values_at_the_knots(function):
    value, slope, inverse_step = function.table()
    knots = function.knots
    assert knots[0] == 0.0
    assert knots[-1] == 32.0
    np.testing.assert_array_equal(value, function.even_part(knots))
    np.testing.assert_array_equal(function.tabulated().even_part(knots), value)
    np.testing.assert_allclose(np.diff(knots), 1 / inverse_step)
    np.testing.assert_array_equal(slope[:-1], np.diff(value))
    for array in (value, slope):
        assert array.dtype == np.float64
        assert array.flags.c_contiguous


@every
def test_tail_goes_on_as_a_line(function):
    g = function.tabulated()
    steps = np.diff(g.even_part(np.array([32.0, 64.0, 96.0, 128.0])))
    np.testing.assert_allclose(steps, steps[0], atol=1e-12)
    for far in (100.0, 1000.0):
        # Against the function itself: the tail has the right slope, up to a bounded difference.
        assert abs(g.even_part(far) - function.even_part(far)) < 0.05 * far


def test_tabulated_is_its_own_table():
    g = moved(Mixture()).tabulated()
    assert isinstance(g, Tabulated)
    again = g.tabulated()
    np.testing.assert_array_equal(again.even_part(MODERATE), g.even_part(MODERATE))
    np.testing.assert_array_equal(g.knots, Mixture().knots)
    assert repr(g) == f"Tabulated({g.knots.size} knots)"


# ----------------------------------------------------------------- gradients


@learnable
def test_vjp_is_the_derivative_of_the_knots(function):
    rng = np.random.default_rng(5)
    # Off the initialisation, where some kinks of the network stand exactly on knots.
    function = moved(function, 7, 0.01)
    weight = rng.standard_normal(function.table().value.size)
    grad = function.vjp(weight)
    assert grad.shape == function.theta.shape
    step = 1e-6
    some = np.arange(function.theta.size)
    if some.size > 40:
        # All lines that matter somewhere, and a few that do not.
        some = np.unique(
            np.concatenate([np.flatnonzero(grad)[:40], rng.integers(function.theta.size, size=10)])
        )
    for k in some:
        ends = []
        for sign in (1, -1):
            theta = function.theta.copy()
            theta[k] += sign * step
            ends.append(weight @ function.with_theta(theta).table().value)
        wanted = (ends[0] - ends[1]) / (2 * step)
        assert grad[k] == pytest.approx(wanted, rel=1e-4, abs=2e-6 * np.abs(grad).max())


@learnable
def test_vjp_is_linear_and_does_not_remember(function):
    size = function.table().value.size
    first, second = np.random.default_rng(0).standard_normal((2, size))
    together = function.vjp(first + 2 * second)
    scale = np.abs(together).max()
    np.testing.assert_allclose(
        function.vjp(first) + 2 * function.vjp(second), together, rtol=1e-9, atol=1e-12 * scale
    )
    np.testing.assert_array_equal(function.vjp(np.zeros(size)), 0.0)
    # A constant added to h changes nothing, so theta has directions in which nothing happens;
    # with_theta must not keep what was computed for the old parameters.
    other = function.with_theta(function.theta + 0.1)
    function.vjp(first)
    np.testing.assert_array_equal(
        other.vjp(first), type(function).with_theta(function, function.theta + 0.1).vjp(first)
    )


@learnable
def test_with_theta_returns_another_function(function):
    u = np.linspace(0, 5, 11)
    before, theta = function.even_part(u), function.theta.copy()
    given = theta + 0.25
    other = function.with_theta(given)
    given[:] = 0.0
    assert type(other) is type(function)
    np.testing.assert_array_equal(other.theta, theta + 0.25)
    np.testing.assert_array_equal(function.theta, theta)
    np.testing.assert_array_equal(function.even_part(u), before)
    np.testing.assert_array_equal(function.with_theta(theta).even_part(u), before)
    np.testing.assert_array_equal(function.with_theta(theta).table().value, function.table().value)


def test_wild_parameters_give_no_warning():
    u = np.linspace(0, 40, 81)
    for function in (Mixture(), Network()):
        for scale in (1e2, 1e4):
            other = moved(function, 3, scale)
            assert not np.isnan(other.tabulated().even_part(u)).any()


# ----------------------------------------------------------------- bounded slopes


@pytest.mark.parametrize("name", LIPSCHITZ)
@pytest.mark.parametrize("scale", [0.1, 1.0, 10.0, 1e4])
def test_the_slope_of_h_is_bounded(name, scale):
    function = LIPSCHITZ[name]
    u = np.linspace(-40, 40, 20001)
    for seed in range(5):
        other = moved(function, seed, scale)
        slope = np.diff(other.even_part(u)) / np.diff(u)
        assert np.abs(slope).max() <= function.bound * (1 + 1e-9)
        assert np.abs(other.table().slope).max() <= function.bound * other.knot_step * (1 + 1e-12)
        if function.bound == 0.5:  # and so g increases
            rounding = 1e-12
            assert np.diff(other.log_g(u)).min() >= -rounding
        else:
            assert np.abs(slope).max() > 0.5 or scale < 1


def test_every_slope_within_the_bound_is_reached():
    for bound in (0.5, 1.5):
        for psi, slope in ((-30.0, -bound), (30.0, bound), (np.arctanh(0.3), 0.3 * bound)):
            function = Lipschitz(bound, "knots", np.full(41, psi))
            u = np.linspace(-40, 40, 801)
            np.testing.assert_allclose(function.even_part(u), slope * np.abs(u), atol=1e-12)


@pytest.mark.parametrize("name", LIPSCHITZ)
def test_bounded_slopes_start_at_the_square_root(name):
    u = np.linspace(-100, 100, 401)
    np.testing.assert_array_equal(LIPSCHITZ[name].even_part(u), np.zeros(401))
    np.testing.assert_array_equal(LIPSCHITZ[name].log_g(u), Sqrt().log_g(u))
    assert LIPSCHITZ[name].theta.shape == ((41,) if name.endswith("knots") else (31,))


def test_min_max_and_barker_are_in_the_family():
    u = np.linspace(-40, 40, 801)
    places = np.concatenate(
        [np.arange(0, 4, 0.25), np.arange(4, 8, 0.5), np.arange(8, 16), np.arange(16, 33, 2)]
    )
    for psi, wanted in ((-20.0, Min()), (20.0, Max())):
        theta = np.append(np.zeros(30), psi)  # a network that is constant
        for function in (
            Lipschitz(0.5, "knots", np.full(41, psi)),
            Lipschitz(architecture="network", theta=theta),
        ):
            np.testing.assert_allclose(function.even_part(u), wanted.even_part(u), atol=1e-12)
    barker = Barker().even_part(u) - Barker().even_part(0.0)
    # h = -log cosh(u/2): psi is exactly linear; h is then summed by trapezoids of width 1/8.
    function = Lipschitz(0.5, "knots", -places / 2)
    np.testing.assert_allclose(function.even_part(u), barker, atol=1e-3)
    # v from s = v / (1 + v) by ten bends: fitted here by least squares of psi up to v = 6.
    network = Lipschitz(architecture="network")
    v = np.linspace(0, 6, 200)
    hidden = np.tanh(np.multiply.outer(v / (1 + v), network.theta[:10]) + network.theta[10:20])
    out = np.linalg.lstsq(np.c_[hidden, np.ones(v.size)], -v / 2)[0]
    fitted = network.with_theta(np.concatenate([network.theta[:20], out]))
    np.testing.assert_allclose(fitted.even_part(u), barker, atol=0.02)


@pytest.mark.parametrize("name", LIPSCHITZ)
def test_a_bounded_slope_passes_the_public_check(name):
    for scale in (0.0, 0.5):
        testing.check_balancing(moved(LIPSCHITZ[name], 4, scale))


@pytest.mark.parametrize("name", LIPSCHITZ)
def test_a_bounded_slope_is_a_parameter_like_any_other(name):
    function = moved(LIPSCHITZ[name])
    sampler = LSBSampler(function, pilot=False, n_burn_in=20, n_chains=2, random_state=0)
    assert sampler.get_params()["balancing"] is function
    other = clone(sampler)
    assert repr(other) == repr(sampler)
    np.testing.assert_array_equal(other.balancing.theta, function.theta)
    assert (other.balancing.bound, other.balancing.architecture) == (
        function.bound,
        function.architecture,
    )
    target = Ising([[0.0, 0.5], [0.5, 0.0]], [0.3, -0.2])
    sampler.fit(target)
    assert isinstance(sampler.balancing_, Lipschitz)
    assert sampler.balancing_.bound == function.bound
    assert (sampler.burn_in_balancing_.theta != function.theta).any()
    again = pickle.loads(pickle.dumps(sampler))
    np.testing.assert_array_equal(again.balancing_.theta, sampler.balancing_.theta)
    np.testing.assert_array_equal(again.sample(9)["x"], sampler.sample(9)["x"])


class Reversed(Mixture):
    """Its gradient has the wrong sign."""

    def vjp(self, grad_knots):
        return -super().vjp(grad_knots)


def test_the_public_check_finds_a_wrong_gradient():
    with pytest.raises(AssertionError, match="vjp against finite differences"):
        testing.check_balancing(Reversed())


# ----------------------------------------------------------------- a user's own function


def test_user_function_needs_one_method():
    function = Rounded()
    u = np.linspace(-200, 200, 401)
    np.testing.assert_allclose(function.tabulated().even_part(u), function.even_part(u), atol=0.02)
    assert repr(function) == "Rounded()"
    sampler = LSBSampler(function, n_chains=2, n_burn_in=50, random_state=0)
    assert get_balancing(function) is function
    assert sampler.balancing is function


def test_a_constant_added_to_h_leaves_the_tail():
    class Shifted(Rounded):
        def even_part(self, u):
            return super().even_part(u) + 5.0

    np.testing.assert_allclose(Shifted().table().slope, Rounded().table().slope, atol=1e-14)


def test_even_part_of_a_user_is_required():
    class Nothing(BalancingFunction):
        pass

    with pytest.raises(TypeError, match="even_part"):
        Nothing()
    with pytest.raises(TypeError, match="abstract"):
        LearnableFunction()


# ----------------------------------------------------------------- errors


class OneNumber(BalancingFunction):
    def even_part(self, u):
        return np.float64(1.0)


class Overflowing(BalancingFunction):
    def even_part(self, u):
        return np.where(np.abs(u) >= 2.5, np.inf, 0.0)


class BadTail(BalancingFunction):
    def even_part(self, u):
        return np.where(np.abs(u) > 40, np.nan, 0.0)


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (
            lambda: OneNumber().table(),
            ValueError,
            r"OneNumber\.even_part returned shape \(\) for an input of shape \(2049,\)",
        ),
        (
            lambda: Overflowing().table(),
            ValueError,
            r"Overflowing\.even_part\(2\.5\) is inf .*must be finite",
        ),
        (lambda: BadTail().table(), ValueError, r"BadTail.*slope of the tail nan.*finite"),
        (lambda: Lipschitz(0), ValueError, "bound is 0; it must be a positive number"),
        (lambda: Lipschitz(-0.5), ValueError, r"bound is -0\.5; it must be a positive number"),
        (lambda: Lipschitz(np.inf), ValueError, "bound is inf; it must be a positive number"),
        (lambda: Lipschitz(np.nan), ValueError, "bound is nan; it must be a positive number"),
        (lambda: Lipschitz("half"), ValueError, "bound is 'half'; it must be a positive number"),
        (
            lambda: Lipschitz(architecture="mlp"),
            ValueError,
            r"architecture is 'mlp'; it must be one of \['knots', 'network'\]",
        ),
        (
            lambda: Lipschitz(0.5, "knots", np.zeros(31)),
            ValueError,
            r"theta has shape \(31,\); it must have shape \(41,\)",
        ),
        (
            lambda: Lipschitz(architecture="network", theta=np.full(31, np.nan)),
            ValueError,
            r"theta\[0\] is nan; it must be finite",
        ),
        (
            lambda: Mixture([1.0, 2.0]),
            ValueError,
            r"theta has shape \(2,\); it must have shape \(4,\)",
        ),
        (
            lambda: Network(theta=np.zeros(30)),
            ValueError,
            r"theta has shape \(30,\); it must have shape \(31,\)",
        ),
        (
            lambda: Mixture([0.0, np.nan, 0, 0]),
            ValueError,
            r"theta\[1\] is nan; it must be finite",
        ),
        (
            lambda: Mixture().with_theta([0, 0, 0, np.inf]),
            ValueError,
            r"theta\[3\] is inf; it must be finite",
        ),
        (
            lambda: get_balancing("barkr"),
            ValueError,
            r"balancing is 'barkr'; it must be one of "
            r"\['barker', 'learned', 'max', 'min', 'mixture', 'sqrt'\]",
        ),
        (lambda: get_balancing(3), TypeError, r"balancing is 3; give one of .* or a Balancing"),
        (
            lambda: get_balancing(Barker),
            TypeError,
            r"balancing is <class '.*Barker'>; .*Did you forget the parentheses\?",
        ),
        (lambda: get_balancing(None), TypeError, "balancing is None; give one of"),
    ],
)
def test_errors_name_what_was_given(make, error, message):
    with pytest.raises(error, match=message):
        make()


def test_names():
    for name, cls in FIXED.items():
        assert type(get_balancing(name)) is cls
    assert type(get_balancing("mixture")) is Mixture
    learned = get_balancing("learned")
    assert (type(learned), learned.bound) == (Lipschitz, 0.5)


# ----------------------------------------------------------------- repr, pickle, plot


@pytest.mark.parametrize("function", EVERY.values(), ids=EVERY)
def test_pickle_and_copy(function):
    function.table()
    u = np.linspace(-40, 40, 33)
    for again in (
        pickle.loads(pickle.dumps(function)),
        copy.copy(function),
        copy.deepcopy(function),
    ):
        np.testing.assert_array_equal(again.even_part(u), function.even_part(u))
        np.testing.assert_array_equal(again.table().value, function.table().value)
        assert repr(again) == repr(function)
    assert b"sklsb._" not in pickle.dumps(type(function))  # found by its public name


def test_repr_is_how_to_make_it():
    assert repr(Barker()) == "Barker()"
    for function in (Barker(), Sqrt(), Network(), *LIPSCHITZ.values()):
        assert repr(eval(repr(function))) == repr(function)
    assert repr(Mixture()) == "Mixture()"
    assert repr(Mixture([1, 2, 3, 4])) == "Mixture(theta=[1., 2., 3., 4.])"


@pytest.fixture
def plt():
    matplotlib = pytest.importorskip("matplotlib", reason="plots need matplotlib")
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    yield plt
    plt.close("all")


def test_plot(plt):
    ax = Rounded().plot(u_max=6.0)
    labels = [line.get_label() for line in ax.get_lines()]
    assert labels == ["barker", "sqrt", "min", "max", "rounded"]
    assert [text.get_text() for text in ax.get_legend().get_texts()] == labels
    u, h = ax.get_lines()[-1].get_data()
    assert (u.min(), u.max()) == (-6.0, 6.0)
    np.testing.assert_allclose(h, Rounded().even_part(u) - Rounded().even_part(0.0))
    _, drawn = ax.get_lines()[0].get_data()
    np.testing.assert_allclose(drawn, Barker().even_part(u) - Barker().even_part(0.0))
    assert ax.get_xlabel()
    assert ax.get_ylabel() == "even part of log g"
    ax.figure.canvas.draw()


def test_plot_into_given_axes_without_drawing_a_function_twice(plt):
    _, ax = plt.subplots()
    assert Sqrt().plot(ax) is ax
    assert sorted(line.get_label() for line in ax.get_lines()) == ["barker", "max", "min", "sqrt"]
    for function in (Mixture(), Network()):
        function.plot(plt.subplots()[1]).figure.canvas.draw()


def test_module_names_are_there():
    for name in balancing.__all__:
        assert hasattr(balancing, name)


class NotEven(BalancingFunction):
    """What one writes who takes the even part for log g."""

    def even_part(self, u):
        return np.minimum(0.0, u)


def test_a_function_that_is_not_even_is_refused():
    with pytest.raises(ValueError, match=r"NotEven.even_part is 0.0 at u = .* it must be even"):
        get_balancing(NotEven())


@pytest.mark.parametrize("step", [0.0, -1 / 64, 64.0])
def test_distance_of_knots_is_checked(step):
    class Stepped(Sqrt):
        knot_step = step

    with pytest.raises(ValueError, match=f"knot_step is {step}"):
        Stepped().table()


class Bent(BalancingFunction):
    """A function of a user, with a parameter."""

    def __init__(self, depth=1.0):
        self.depth = depth

    def even_part(self, u):
        return -self.depth * np.log1p(np.abs(u))


def test_parameters_as_scikit_learn_has_them():
    sampler = LSBSampler(Lipschitz(2.0))
    assert sampler.get_params()["balancing__bound"] == 2.0
    sampler.set_params(balancing__bound=0.7)
    assert sampler.balancing.bound == 0.7
    u = np.linspace(-9, 9, 41)
    assert np.array_equal(sampler.balancing.even_part(u), Lipschitz(0.7).even_part(u))
    with pytest.raises(ValueError, match=r"no parameter 'slope'; it has \['architecture', 'bound'"):
        sampler.set_params(balancing__slope=1.0)
    with pytest.raises(ValueError, match="bound is -1; it must be a positive number"):
        sampler.set_params(balancing__bound=-1)
    assert sampler.balancing.bound == 0.7
    assert LSBSampler(Bent(2.0)).set_params(balancing__depth=3.0).balancing.depth == 3.0
    assert repr(Bent(2.0)) == "Bent(depth=2.0)"
    assert repr(Barker()) == "Barker()"


def test_a_clone_has_parameters_of_its_own():
    learned = Lipschitz().with_theta(np.linspace(-1, 1, 41))
    assert repr(learned) == "Lipschitz(bound=0.5, architecture='knots', theta=<41 numbers>)"
    for function in (learned, Mixture([1, 2, 3, 4]), Network(), Bent(2.0), Min().tabulated()):
        copied = clone(LSBSampler(function)).balancing
        assert copied is not function
        assert np.array_equal(copied.table().value, function.table().value)
    clone(LSBSampler(learned)).set_params(balancing__bound=9.0)
    assert learned.bound == 0.5


def test_a_new_architecture_starts_anew_unless_parameters_are_given():
    assert Lipschitz().set_params(architecture="network").theta.size == 31
    with pytest.raises(ValueError, match=r"theta has shape \(41,\)"):
        Lipschitz().with_theta(np.zeros(41)).set_params(architecture="network")


class Keyword(BalancingFunction):
    def __init__(self, a=1.0, *, b=2.0):
        self.a, self.b = a, b

    def even_part(self, u):
        return -self.b * np.log1p(np.abs(u))


class Tilted(LearnableFunction):
    """A learnable function whose parameters are no argument."""

    def __init__(self, scale=1.0):
        self.scale, self.theta = scale, self._check_theta(np.zeros(1), 1)

    def even_part(self, u):
        return self.scale * self.theta[0] * np.tanh(np.abs(u))

    def vjp(self, grad_knots):
        return np.array([grad_knots @ (self.scale * np.tanh(self.knots))])


def test_keyword_only_parameters_and_what_was_learned_stay():
    function = Keyword(b=5.0).set_params(a=3.0)
    assert function.get_params() == {"a": 3.0, "b": 5.0}
    assert repr(function) == "Keyword(a=3.0, b=5.0)"
    learned = Tilted().with_theta([0.3]).set_params(scale=2.0)
    assert (learned.scale, learned.theta.tolist()) == (2.0, [0.3])


def test_a_warm_start_sees_a_parameter_that_was_set():
    settings = {"n_burn_in": 50, "pilot": False, "objective": "kl", "random_state": 0}
    sampler = LSBSampler(Lipschitz(0.5), warm_start=True, **settings)
    target = Ising([[0.0, 0.4], [0.4, 0.0]], [0.3, 0.1])
    sampler.fit(target).fit(target)
    assert sampler.burn_in_balancing_.bound == 0.5
    sampler.set_params(balancing__bound=1.5).fit(target)
    assert sampler.burn_in_balancing_.bound == sampler.balancing_.bound == 1.5
