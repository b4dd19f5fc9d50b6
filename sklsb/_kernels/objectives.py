r"""Objectives of learning at the states of chains, and their gradients at the knots of the table.

With T_m = w_m / max(Z(x), Z(x^m)) the probability of making move m,

    d log T_m = d h(l_m) - d log max(Z(x), Z(x^m)),     d Z = sum_j w_j d h(l_j),

and Z(x^m) differs from Z(x) by the touched weights only. The terms with d Z are gathered over all
moves in one number, the "mass", and spread over the knots once at the end.

An objective is a compiled function and an entry of `OBJECTIVES`. All are sums over all next states
of a `term` but the `Bound`, which is estimated at neighbours that are drawn.
"""

import math
from collections import namedtuple
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from itertools import count
from typing import Any, NamedTuple

import numpy as np

from sklsb._kernels._jit import contract, implements, inlined, kernel
from sklsb._kernels.chains import chain_at
from sklsb._kernels.contract import first_move, flip, log_ratio
from sklsb._kernels.numeric import exp
from sklsb._kernels.rules.balanced import (
    LARGEST_TOTAL,
    SMALLEST_TOTAL,
    log_weight_at,
    log_weight_by,
    weigh_all,
)
from sklsb._kernels.tree import select, total

# Rounding level of a probability; its logarithm stands in for log 0.
SMALLEST_STAY = 2.0**-53


# ----------------------------------------------------------------- terms


@contract(0)
def term(objective, t, log_t, log_ratio, stays):
    """Contribution of one next state, and its derivative by t; see `objective`."""


class Divergence(NamedTuple):
    """KL divergence of the next state from p: sum_i T_i (log T_i - l_i) + M log M."""


@implements(term, Divergence)
def _divergence(objective, t, log_t, log_ratio, stays):
    by_t = log_t - log_ratio
    return t * by_t, by_t


class Bound(NamedTuple):
    """Omega (Q'/Q) A log(T'/p') at a proposed x', plus the bound at a uniform one; see `_bound`."""


@inlined
def _bound(event, transition, omega, eta):
    """Contribution of a neighbour to the bound, and its derivatives by log T and by eta.

    Event 0 is a proposed neighbour. Event 1 is a uniform one: M [eta M - omega (log eta + 1)] with
    M = 1 - T. ``transition`` = (log T, log-ratio, acceptance probability), ``omega`` = (omega, log
    omega).
    """
    log_t, ratio, acceptance = transition
    weight, log_weight_ = omega
    if event == 0:
        surprise = log_t - ratio - log_weight_
        scale = weight * acceptance
        return scale * surprise, scale * (surprise + 1.0), 0.0
    t = math.exp(log_t)
    stay, rest = 1.0 - t, weight * (math.log(eta) + 1.0)
    by_t = 2.0 * eta * stay - rest
    return stay * (eta * stay - rest), -t * by_t, stay * (stay - weight / eta)


# ----------------------------------------------------------------- the registry


@dataclass(eq=False, repr=False)
class Objective:
    """An objective of learning; the decorator `objective` makes one.

    Parameters
    ----------
    name : str
        Its name in ``LSBSampler(objective=name)``.
    compiled : named tuple
        Implements `term`, or is a `Bound`.
    learning_rate : float, optional
        Step size of the optimiser in the burn-in; by default the function's own.
    weighted : bool, default=False
        Whether the chains are weighted by p.
    learns_eta : bool, default=False
        Whether the parameter eta is learned with the function.
    """

    name: str
    compiled: Any
    _: KW_ONLY
    learning_rate: float | None = None
    weighted: bool = False
    learns_eta: bool = False

    def __post_init__(self) -> None:
        if not (self.enumerated or isinstance(self.compiled, Bound)):
            raise TypeError(
                f"{type(self.compiled).__name__} is no compiled objective; declare one by "
                "sklsb.extending.objective."
            )

    def __repr__(self) -> str:
        return f"Objective({self.name!r})"

    @property
    def enumerated(self) -> bool:
        """Whether it is a sum over all next states."""
        return type(self.compiled) in term.implementations

    @classmethod
    def of(cls, given: "str | Objective") -> "Objective":
        """Return an objective given by its name, or as it is; refuse unknown names."""
        if isinstance(given, cls):
            return given
        if not isinstance(given, str) or given not in OBJECTIVES:
            raise ValueError(
                f"objective is {given!r}; known are {sorted(OBJECTIVES)}. "
                "sklsb.extending.objective declares one of your own."
            )
        return OBJECTIVES[given]

    def __getstate__(self) -> dict[str, str]:
        return {"name": self.name}

    def __setstate__(self, state: dict[str, str]) -> None:
        self.__dict__.update(vars(Objective.of(state["name"])))

    def __deepcopy__(self, memory: Any) -> "Objective":  # not by its name: it may be declared anew
        return self

    def __copy__(self) -> "Objective":
        return self


OBJECTIVES = {
    one.name: one
    for one in (
        Objective("bound", Bound(), learning_rate=0.01, weighted=True, learns_eta=True),
        Objective("exact", Divergence(), weighted=True),
        Objective("kl", Divergence()),
    )
}
# Including names that mean something else to `LSBSampler`.
_TAKEN = {"auto", "flux", "global_flux", *OBJECTIVES}
_number = count()


def objective(
    name: str, *, learning_rate: float | None = None
) -> Callable[[Callable[..., tuple[float, float]]], Objective]:
    """Declare an objective of learning: a sum over all states that a transition may lead to.

    The decorated function is compiled and called as ``function(t, log_t, log_ratio, stays)`` for
    each next state: with the probability ``t`` of going there, its logarithm, and log p there less
    log p here. One of these calls is for staying: then ``stays`` is True, ``t`` is the probability
    that the chain stays, and ``log_ratio`` is 0. It returns the state's contribution to the
    objective and the derivative of that by ``t``. All derivatives may omit the same constant, since
    all ``t`` sum to 1.

    The mean over the chains is minimised.

    Parameters
    ----------
    name : str
        ``LSBSampler(objective=name)`` chooses it.
    learning_rate : float, optional
        Step size of the optimiser in the burn-in; by default the function's own.

    Returns
    -------
    callable
        A decorator that returns an `Objective`, which ``LSBSampler(objective=...)`` takes too.

    Raises
    ------
    ValueError
        If the package uses the name itself.

    See Also
    --------
    sklsb.testing.check_objective : Checks values and gradients.
    """
    if not isinstance(name, str) or name in _TAKEN:
        raise ValueError(
            f"name is {name!r}; give a string that is none of {sorted(_TAKEN)}, which are taken."
        )

    def declare(function: Callable[..., tuple[float, float]]) -> Objective:
        compiled = inlined(function)

        def call(objective, t, log_t, log_ratio, stays):
            return compiled(t, log_t, log_ratio, stays)

        # A name of its own: numba identifies named tuples by name, and would not compile the
        # function of a notebook cell again when the cell is run again.
        cls: Any = namedtuple(f"{function.__name__}_{next(_number)}", ())  # type: ignore[misc]
        # The user's module: so its kernels are not kept on disk.
        cls.__module__ = call.__module__ = function.__module__
        implements(term, cls)(call)
        OBJECTIVES[name] = Objective(name, cls(), learning_rate=learning_rate)
        return OBJECTIVES[name]

    return declare


# ----------------------------------------------------------------- gradients at the knots


@inlined
def _add_knots(table, u, amount, share, weight, gradient):
    """gradient[k] += amount[k] * share * weight * d h / d table.value, for each row k."""
    last = np.float64(table.value.size) - 1.0
    a = min(abs(u) * table.inverse_step, last)
    knot = np.uint64(min(a, last - 1.0))
    upper = a - np.float64(knot)
    for k in range(len(amount)):
        whole = amount[k] * share * weight
        part = whole * upper
        gradient[k, knot] += whole - part
        gradient[k, knot + np.uint64(1)] += part


@inlined
def _peek(view, rule, chain, move):
    """Make a move but leave the tree alone; return (move, its inverse, Z(x')).

    Z(x') is Z(x) plus the changes of the touched weights; only max(Z(x), Z(x')) is used, in which
    nothing cancels.
    """
    inverse = flip(view, chain, move)
    begin, end = view.touched_start[move], view.touched_start[move + np.uint64(1)]
    change = 0.0
    for k in range(begin, end):
        t = np.uint64(view.touched[k])
        weight = exp(log_weight_at(view, rule, chain, t) - chain.part.offset[0])
        chain.part.old_weight[k - begin] = weight
        change += weight - chain.part.tree[t]
    chain.evaluations[0] += np.int64(end - begin)
    return move, inverse, total(chain) + change


@inlined
def _undo_and_add(view, rule, chain, peeked, amount, gradient):
    """Undo a peek and add amount[k] * d log T to row k of the gradient; return 1 / Z.

    With Z = max(Z(x), Z(x')), d log T = d h - d Z / Z, in which

    - d h of the move itself is added last;
    - d Z(x') - d Z(x), if Z(x') is larger, has the touched moves: with a minus at x', a plus at x;
    - d Z(x) has all moves and is the same for every move peeked at: the caller sums the factors
      amount / Z, and `_spread` adds that part once.
    """
    move, inverse, after = peeked
    before = total(chain)
    share = 1.0 / max(before, after)
    begin, end = view.touched_start[move], view.touched_start[move + np.uint64(1)]
    if before < after:
        for k in range(begin, end):
            t = np.uint64(view.touched[k])
            u = log_ratio(view, chain, t)
            weight = -chain.part.old_weight[k - begin]
            _add_knots(rule.table, u, amount, share, weight, gradient)
    flip(view, chain, inverse)
    if before < after:
        for k in range(begin, end):
            t = np.uint64(view.touched[k])
            u = log_ratio(view, chain, t)
            _add_knots(rule.table, u, amount, share, chain.part.tree[t], gradient)
    _add_knots(rule.table, log_ratio(view, chain, move), amount, 1.0, 1.0, gradient)
    return share


@inlined
def _spread(view, rule, chain, mass, gradient):
    """Subtract mass * d Z from the gradient."""
    for m in range(view.touched_start.size - 1):
        part = mass * chain.part.tree[m]
        if part != 0.0:
            u = log_ratio(view, chain, np.uint64(m))
            _add_knots(rule.table, u, (-part,), 1.0, 1.0, gradient)


@inlined
def _weigh_again(view, rule, chain):
    """Weigh all moves by a rule, with a new offset if the present one fails."""
    weigh_all(view, rule, chain, False)
    if not SMALLEST_TOTAL < total(chain) < LARGEST_TOTAL:
        weigh_all(view, rule, chain, True)


@inlined
def _sampled(view, rule, chain, eta, uniforms, log_omega, gradient):
    """Evaluate the two terms of the bound at one chain: (value, d / d eta)."""
    before = total(chain)
    n_moves = view.touched_start.size - 1
    omega = math.exp(log_omega), log_omega
    mass = value = d_eta = 0.0
    for event in range(2):
        move = np.uint64(min(np.int64(uniforms[1] * n_moves), n_moves - 1))
        if event == 0:
            move = select(view, chain, uniforms[0] * before)
        ratio = log_ratio(view, chain, move)
        log_w = log_weight_by(rule, move, ratio)
        peeked = _peek(view, rule, chain, move)
        largest = max(before, peeked[2])
        acceptance = before / largest
        if chain.part.tree[move] > 0.0 and acceptance > 0.0:
            log_t = log_w - chain.part.offset[0] - math.log(largest)
            transition = log_t, ratio, acceptance
            worth, by_log_t, by_eta = _bound(event, transition, omega, eta)
            share = _undo_and_add(view, rule, chain, peeked, (by_log_t,), gradient)
            mass += by_log_t * share
            value += worth
            d_eta += by_eta
        else:  # T = 0: no gradient
            flip(view, chain, peeked[1])
            if event == 1:
                worth, _, by_eta = _bound(event, (-np.inf, ratio, 0.0), omega, eta)
                value += worth
                d_eta += by_eta
    _spread(view, rule, chain, mass, gradient)
    return value, d_eta


@inlined
def _enumerated(view, rule, chain, settings, u, log_omega, gradient):
    """Evaluate omega [sum_m f(T_m, l_m) + f(M, 0)] at one chain, f being the objective's `term`.

    If chains are weighted by p, log omega is subtracted from the sum.

    The gradient is omega sum_m T_m s_m d log T_m with s_m = f'(T_m, l_m) - f'(M, 0). M is known
    only at the end, so the second row gathers what f'(M, 0) multiplies. If only each ``every``-th
    move is visited, b sum_m Q_m d log Q_m with b the mean of s is subtracted as a control variate:
    over all moves it is zero (third row).
    """
    objective, every, weighted = settings
    before = total(chain)
    n_moves = view.touched_start.size - 1
    first = min(np.int64(u * every), every - 1)
    n_visited = -((first - n_moves) // every)
    mass = (0.0, 0.0, 0.0)
    value = slope = stay = moved = 0.0
    for k in range(n_visited):
        move = np.uint64(first + k * every)
        ratio = log_ratio(view, chain, move)
        q = chain.part.tree[move] / before
        if q == 0.0:
            continue
        log_w = log_weight_by(rule, move, ratio)
        peeked = _peek(view, rule, chain, move)
        largest = max(before, peeked[2])
        acceptance = before / largest
        stay += q * (1.0 - acceptance)
        if acceptance > 0.0:
            log_t = log_w - chain.part.offset[0] - math.log(largest)
            t = math.exp(log_t)
            worth, by_t = term(objective, t, log_t, ratio, False)
            score = t * by_t
            value += worth
            slope += score
            moved += t
            share = _undo_and_add(view, rule, chain, peeked, (score, t), gradient)
            _add_knots(rule.table, ratio, (q,), 1.0, 1.0, gradient[2:])
            mass = (mass[0] + score * share, mass[1] + t * share, mass[2] + q / before)
        else:  # T = 0: no gradient
            flip(view, chain, peeked[1])
    # A subset of the moves cannot resolve an M below one over their number.
    smallest = SMALLEST_STAY if every == 1 else 1.0 / n_visited
    stay *= every
    worth, by_stay = term(objective, stay, math.log(max(stay, smallest)), 0.0, True)
    baseline = slope / moved - by_stay if every > 1 and moved > 0.0 else 0.0
    omega = math.exp(log_omega)
    scale = every * omega
    for k in range(gradient.shape[1]):
        part = gradient[0, k] - by_stay * gradient[1, k] - baseline * gradient[2, k]
        gradient[0, k] = scale * part
    part = mass[0] - by_stay * mass[1] - baseline * mass[2]
    _spread(view, rule, chain, scale * part, gradient)
    return omega * (every * value + worth - (log_omega if weighted else 0.0))


@kernel
def sampled(view, rule, chains, span, eta, uniforms, log_omega, out):
    """Weigh all moves, then evaluate the bound and its gradient per chain.

    ``span`` = (first, last) chain, ``uniforms[c]`` = (for the proposed neighbour, for the uniform
    one), ``log_omega[c]`` = log importance weight, ``out`` = (gradient (n, 1, knots), value (n,),
    derivative by eta (n,)).
    """
    gradients, values, d_eta = out
    for c in range(span[0], span[1]):
        chain = chain_at(chains, c)
        gradients[c] = 0.0
        values[c] = d_eta[c] = 0.0
        _weigh_again(view, rule, chain)
        if total(chain) > 0.0:
            u, w = (uniforms[c, 0], uniforms[c, 1]), log_omega[c]
            values[c], d_eta[c] = _sampled(view, rule, chain, eta, u, w, gradients[c])


@kernel
def enumerated(view, rule, chains, span, settings, uniforms, log_omega, out):
    """Do the same for an objective over all neighbours, or each ``every``-th.

    ``settings`` = (compiled objective, every, whether chains are weighted by p), ``uniforms[c]``
    chooses the first neighbour, log_omega[c] = -inf omits the chain, ``out`` = (gradient
    (n, 3, knots), value (n,)); the gradient is in its first row, the others are scratch.
    """
    gradients, values = out
    for c in range(span[0], span[1]):
        chain = chain_at(chains, c)
        gradients[c] = 0.0
        values[c] = 0.0
        _weigh_again(view, rule, chain)
        u, w = uniforms[c], log_omega[c]
        if total(chain) > 0.0 and w > -np.inf:
            values[c] = _enumerated(view, rule, chain, settings, u, w, gradients[c])


@kernel
def worth(compiled, t, log_t, log_ratio, stays, out):
    """Evaluate the `term` of an objective entry by entry; for checks."""
    for k in range(out.size):
        out[k] = term(compiled, t[k], log_t[k], log_ratio[k], stays[k])[0]


@inlined
def _flow(view, rule, chain, site, local, weight, gradient):
    """Return flow, value and mass of one site, see `flux`; add value * d log T to the gradient."""
    begin, end = first_move(view, site), first_move(view, site + np.uint64(1))
    before = total(chain)
    odds = 0.0
    for move in range(begin, end):
        odds += exp(min(log_ratio(view, chain, move), 700.0))
    p = 1.0 / (1.0 + odds)
    t = last_t = mass = 0.0
    made = False
    peeked = (begin, begin, before)
    for move in range(begin, end):
        if chain.part.tree[move] > 0.0:
            if made:
                flip(view, chain, peeked[1])
            peeked = _peek(view, rule, chain, move)
            made = True
            last_t = chain.part.tree[move] / max(before, peeked[2])
            t += last_t
    flow = 2.0 * p * t
    value = weight * flow
    if local:
        value = p * (odds * p) ** 2 / t if t > 0.0 else 0.0
    if value == 0.0 or last_t == 0.0:
        if made:
            flip(view, chain, peeked[1])
    else:  # the last move is still made
        amount = value * (last_t / t)
        mass += amount * _undo_and_add(view, rule, chain, peeked, (amount,), gradient)
    # The others, if any, are made once more.
    for move in range(begin, peeked[0] if value > 0.0 else begin):
        if chain.part.tree[move] > 0.0:
            again = _peek(view, rule, chain, move)
            share = chain.part.tree[move] / max(before, again[2]) / t
            if share > 0.0:
                amount = value * share
                mass += amount * _undo_and_add(view, rule, chain, again, (amount,), gradient)
            else:  # Z(x') may be infinite
                flip(view, chain, again[1])
    return flow, value, mass


@kernel
def flux(view, rule, chains, span, sites, weight, out):
    """Evaluate how fast the chains change ``sites``, and the gradient of a function of that.

    At a state x, p_i is the probability of the present value of site i given the others, T_i the
    probability that a transition changes it, and flow_i = 2 p_i T_i. With weights, one per site,
    the value is sum_i weight_i flow_i; without, the local bound log sum_i p_i (1 - p_i)^2 / T_i.
    ``out`` = (gradient (n, 1, knots), value (n,), flow (n, sites)).
    """
    gradients, values, flows = out
    local = weight.size == 0
    for c in range(span[0], span[1]):
        chain = chain_at(chains, c)
        gradient = gradients[c]
        gradient[:, :] = 0.0
        flows[c] = 0.0
        _weigh_again(view, rule, chain)
        mass = whole = 0.0
        for k in range(sites.size):
            w = 0.0 if local else weight[k]
            site = np.uint64(sites[k])
            flow, value, more = _flow(view, rule, chain, site, local, w, gradient)
            flows[c, k] = flow
            whole += value
            mass += more
        scale = 1.0
        if local:
            scale = -1.0 / max(whole, SMALLEST_TOTAL)
            whole = math.log(max(whole, SMALLEST_TOTAL))
        values[c] = whole
        for k in range(gradient.shape[1]):
            gradient[0, k] *= scale
        _spread(view, rule, chain, scale * mass, gradient)
