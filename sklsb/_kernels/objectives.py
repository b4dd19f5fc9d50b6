r"""Objectives of learning at the states of chains, and their gradients at the knots of the table.

With T_m = w_m / max(Z(x), Z(x^m)) the probability of making move m,

    d log T_m = d h(l_m) - d log max(Z(x), Z(x^m)),     d Z = sum_j w_j d h(l_j),

and Z(x^m) differs from Z(x) by the touched weights only. The part with d Z is gathered over all
moves in one number, the "mass", and spread over the knots once at the end.
"""

import math

import numpy as np

from sklsb._kernels._jit import inlined, kernel
from sklsb._kernels.chains import chain_at
from sklsb._kernels.contract import first_move, flip, log_ratio
from sklsb._kernels.numeric import exp, log_weight
from sklsb._kernels.rules.balanced import LARGEST_TOTAL, SMALLEST_TOTAL, rebase, weigh_all
from sklsb._kernels.tree import select, total

# Rounding level of a probability; its logarithm stands in for log 0.
SMALLEST_STAY = 2.0**-53
BOUND, ENUMERATED, SAMPLED_KL = 1, 2, 3


@inlined
def _add_knots(table, u, amount, share, weight, gradient):
    """gradient[k] += amount[k] * share * weight * d h(abs(u)) / d table.value, for each row k."""
    last = np.float64(table.value.size - 1)
    a = min(abs(u) * table.inverse_step, last)
    knot = np.uint64(min(a, last - 1.0))
    upper = a - np.float64(knot)
    for k in range(len(amount)):
        whole = amount[k] * share * weight
        part = whole * upper
        gradient[k, knot] += whole - part
        gradient[k, knot + np.uint64(1)] += part


@inlined
def _peek(view, table, chain, move):
    """Make a move but leave the tree alone; return (move, its inverse, Z(x')).

    Z(x') is Z(x) plus the changes of the touched weights. Only max(Z(x), Z(x')) is used, and
    that has no cancellation.
    """
    inverse = flip(view, chain, move)
    begin, end = view.touched_start[move], view.touched_start[move + np.uint64(1)]
    change = 0.0
    for k in range(begin, end):
        t = np.uint64(view.touched[k])
        weight = exp(log_weight(table, log_ratio(view, chain, t)) - chain.part.offset[0])
        chain.part.old_weight[k - begin] = weight
        change += weight - chain.part.tree[t]
    chain.evaluations[0] += np.int64(end - begin)
    return move, inverse, total(chain) + change


@inlined
def _undo_and_add(view, table, chain, peeked, amount, gradient):
    """Undo the move that was peeked at, and add amount[k] * d log T to row k of the gradient.

    Let Z = max(Z(x), Z(x')). Then d log T = d h(l) - d Z / Z, in which

    - d h(l) of the move itself is added last;
    - d Z(x') - d Z(x), if Z(x') is the larger, concerns the touched moves: their weights at x'
      count with a minus, those at x with a plus;
    - d Z(x) concerns all moves, and is the same for every move that is looked at: the caller sums
      the factors amount / Z, and `_spread` adds that part once.

    Return 1 / Z.
    """
    move, inverse, after = peeked
    before = total(chain)
    share = 1.0 / max(before, after)
    begin, end = view.touched_start[move], view.touched_start[move + np.uint64(1)]
    if before < after:
        for k in range(begin, end):
            u = log_ratio(view, chain, np.uint64(view.touched[k]))
            _add_knots(table, u, amount, share, -chain.part.old_weight[k - begin], gradient)
    flip(view, chain, inverse)
    if before < after:
        for k in range(begin, end):
            t = np.uint64(view.touched[k])
            u = log_ratio(view, chain, t)
            _add_knots(table, u, amount, share, chain.part.tree[t], gradient)
    _add_knots(table, log_ratio(view, chain, move), amount, 1.0, 1.0, gradient)
    return share


@inlined
def _spread(view, table, chain, mass, gradient):
    """Subtract mass * d Z from the gradient."""
    for m in range(view.touched_start.size - 1):
        part = mass * chain.part.tree[m]
        if part != 0.0:
            u = log_ratio(view, chain, np.uint64(m))
            _add_knots(table, u, (-part,), 1.0, 1.0, gradient)


@inlined
def _weigh_again(view, table, chain):
    """Weigh all moves by a table, under another offset where the present one does not do."""
    weigh_all(view, table, chain)
    if not SMALLEST_TOTAL < total(chain) < LARGEST_TOTAL:
        rebase(view, table, chain)


@inlined
def _terms(kind, event, transition, omega, eta):
    """Value of one term of a sampled objective, its derivatives by log T and by eta.

    ``transition`` = (log T, log-ratio, acceptance probability), ``omega`` = (omega, log omega).
    """
    log_t, ratio, acceptance = transition
    weight, log_weight_ = omega
    if event == 0:  # omega A log(T / p) at a neighbour drawn from the proposal
        surprise = log_t - ratio - log_weight_
        scale = weight * acceptance
        return scale * surprise, scale * (surprise + 1.0), 0.0
    # M [eta M - omega (log eta + 1)] with M = 1 - T at a uniform neighbour
    t = math.exp(log_t)
    stay, rest = 1.0 - t, weight * (math.log(eta) + 1.0)
    by_t = 2.0 * eta * stay - rest
    return stay * (eta * stay - rest), -t * by_t, stay * (stay - weight / eta)


@inlined
def _sampled(view, table, chain, settings, uniforms, log_omega, gradient):
    """One or two terms of a sampled objective at one chain: (value, d / d eta)."""
    kind, eta = settings
    before = total(chain)
    n_moves = view.touched_start.size - 1
    omega = (math.exp(log_omega), log_omega)
    mass = value = d_eta = 0.0
    for event in range(2 if kind == BOUND else 1):
        move = np.uint64(min(np.int64(uniforms[1] * n_moves), n_moves - 1))
        if event == 0:
            move = select(view, chain, uniforms[0] * before)
        ratio = log_ratio(view, chain, move)
        peeked = _peek(view, table, chain, move)
        acceptance = before / max(before, peeked[2])
        if chain.part.tree[move] > 0.0 and acceptance > 0.0:
            log_t = (
                log_weight(table, ratio) - chain.part.offset[0] - math.log(max(before, peeked[2]))
            )
            term = _terms(kind, event, (log_t, ratio, acceptance), omega, eta)
            share = _undo_and_add(view, table, chain, peeked, (term[1],), gradient)
            mass += term[1] * share
            value += term[0]
            d_eta += term[2]
        else:  # T = 0: no gradient
            flip(view, chain, peeked[1])
            if event == 1:
                value += eta - omega[0] * (math.log(eta) + 1.0)
                d_eta += 1.0 - omega[0] / eta
    _spread(view, table, chain, mass, gradient)
    return value, d_eta


@inlined
def _enumerated(view, table, chain, every, u, log_omega, gradient):
    """Evaluate omega [sum_m T_m (log T_m - l_m) + M log M - log omega] at one chain.

    The gradient is omega sum_m T_m s_m d log T_m with s_m = log T_m - l_m - log M. log M is known
    only at the end, so the second row gathers what it multiplies. With only each ``every``-th
    move visited, b sum_m Q_m d log Q_m with b the mean of s is subtracted: the whole sum is zero,
    and most of the noise of a part of it is the same as that of the gradient (third row).
    """
    before = total(chain)
    n_moves = view.touched_start.size - 1
    first = min(np.int64(u * every), every - 1)
    n_visited = -((first - n_moves) // every)
    mass = (0.0, 0.0, 0.0)
    value = stay = moved = 0.0
    for k in range(n_visited):
        move = np.uint64(first + k * every)
        ratio = log_ratio(view, chain, move)
        q = chain.part.tree[move] / before
        if q == 0.0:
            continue
        peeked = _peek(view, table, chain, move)
        largest = max(before, peeked[2])
        acceptance = before / largest
        stay += q * (1.0 - acceptance)
        if acceptance > 0.0:
            log_t = log_weight(table, ratio) - chain.part.offset[0] - math.log(largest)
            t = math.exp(log_t)
            score = t * (log_t - ratio)
            value += score
            moved += t
            share = _undo_and_add(view, table, chain, peeked, (score, t), gradient)
            _add_knots(table, ratio, (q,), 1.0, 1.0, gradient[2:])
            mass = (mass[0] + score * share, mass[1] + t * share, mass[2] + q / before)
        else:  # T = 0: no gradient
            flip(view, chain, peeked[1])
    # A part of the moves cannot tell a smaller M than one over their number.
    smallest = SMALLEST_STAY if every == 1 else 1.0 / n_visited
    log_stay = math.log(max(every * stay, smallest))
    baseline = value / moved - log_stay if every > 1 and moved > 0.0 else 0.0
    omega = math.exp(log_omega)
    scale = every * omega
    for k in range(gradient.shape[1]):
        gradient[0, k] = scale * (
            gradient[0, k] - log_stay * gradient[1, k] - baseline * gradient[2, k]
        )
    _spread(
        view, table, chain, scale * (mass[0] - log_stay * mass[1] - baseline * mass[2]), gradient
    )
    return omega * (every * (value + stay * log_stay) - log_omega)


@kernel
def sampled(view, table, chains, span, settings, uniforms, log_omega, out):
    """Weigh all moves by the table, then evaluate a sampled objective and its gradient per chain.

    ``span`` = (first, last) chain, ``settings`` = (kind, eta), ``uniforms[c]`` = (u of the proposed
    neighbour, u of the uniform one), ``log_omega[c]`` = log importance weight, ``out`` = (gradient
    (n, 1, knots), value (n,), derivative by eta (n,)).
    """
    gradients, values, d_eta = out
    for c in range(span[0], span[1]):
        chain = chain_at(chains, c)
        gradients[c] = 0.0
        values[c] = d_eta[c] = 0.0
        _weigh_again(view, table, chain)
        if total(chain) > 0.0:
            u = (uniforms[c, 0], uniforms[c, 1])
            values[c], d_eta[c] = _sampled(
                view, table, chain, settings, u, log_omega[c], gradients[c]
            )


@kernel
def enumerated(view, table, chains, span, every, uniforms, log_omega, out):
    """Do the same for the objective over all neighbours, or each ``every``-th.

    ``uniforms[c]`` tells which of them, log_omega[c] = -inf leaves the chain out, ``out`` =
    (gradient (n, 3, knots), value (n,)); the gradient is in its first row, the others are scratch.
    """
    gradients, values = out
    for c in range(span[0], span[1]):
        chain = chain_at(chains, c)
        gradients[c] = 0.0
        values[c] = 0.0
        _weigh_again(view, table, chain)
        if total(chain) > 0.0 and log_omega[c] > -np.inf:
            values[c] = _enumerated(
                view, table, chain, every, uniforms[c], log_omega[c], gradients[c]
            )


@inlined
def _flow(view, table, chain, site, local, weight, gradient):
    """Flow, value and mass of one site, see `flux`; adds value * d log T to the gradient."""
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
            peeked = _peek(view, table, chain, move)
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
        mass += amount * _undo_and_add(view, table, chain, peeked, (amount,), gradient)
    # The others, if any, are made once more.
    for move in range(begin, peeked[0] if value > 0.0 else begin):
        if chain.part.tree[move] > 0.0:
            again = _peek(view, table, chain, move)
            share = chain.part.tree[move] / max(before, again[2]) / t
            if share > 0.0:
                amount = value * share
                mass += amount * _undo_and_add(view, table, chain, again, (amount,), gradient)
            else:  # Z(x') may be infinite
                flip(view, chain, again[1])
    return flow, value, mass


@kernel
def flux(view, table, chains, span, sites, weight, out):
    """How fast the chains change each of some sites, and the gradient of what is made of it.

    At a state x, p_i is the probability of the present value of site i given the others and T_i
    that of a transition which changes it. ``out`` = (gradient (n, 1, knots), value (n,), flow
    (n, sites)) with flow_i = 2 p_i T_i. With weights, one for each of ``sites``, the value is
    sum_i weight_i flow_i; without, it is the local bound log sum_i p_i (1 - p_i)^2 / T_i.
    """
    gradients, values, flows = out
    for c in range(span[0], span[1]):
        chain = chain_at(chains, c)
        gradient = gradients[c]
        gradient[:, :] = 0.0
        flows[c] = 0.0
        _weigh_again(view, table, chain)
        mass = whole = 0.0
        local = weight.size == 0
        for k in range(sites.size):
            w = 0.0 if local else weight[k]
            site = np.uint64(sites[k])
            flow, value, more = _flow(view, table, chain, site, local, w, gradient)
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
        _spread(view, table, chain, scale * mass, gradient)
