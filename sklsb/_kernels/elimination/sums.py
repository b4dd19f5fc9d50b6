"""Sums over all states, their derivatives, and draws of states, by messages of elimination."""

import math

import numpy as np

from sklsb._kernels._jit import kernel


@kernel
def log_sums(numbers, parts, start, first, share, slope):
    """Write messages behind the numbers that they are made of, and the last one's slope by each.

    A message is the logarithm of the sum of the exponentials of terms ``first[m]`` to
    ``first[m + 1]``, and term t the sum of the numbers at ``parts[start[t]:start[t + 1]]``, where
    earlier messages may be. ``share`` is scratch for terms, and ``slope`` 0, or empty if it is not
    needed.
    """
    n = first.size - 1
    known = numbers.size - n
    for m in range(n):
        top, whole = -np.inf, 0.0
        for t in range(first[m], first[m + 1]):
            total = 0.0
            for p in range(start[t], start[t + 1]):
                total += numbers[parts[p]]
            share[t] = total
            top = max(top, total)
        shift = 0.0 if top == -np.inf else top
        for t in range(first[m], first[m + 1]):
            share[t] = 1.0 if share[t] == shift else math.exp(share[t] - shift)
            whole += share[t]
        for t in range(first[m], first[m + 1]):
            share[t] = share[t] / whole if whole != 0.0 else 0.0
        numbers[known + m] = shift + math.log(whole)
    if slope.size == 0:
        return
    slope[known + n - 1] = 1.0
    for m in range(n - 1, -1, -1):
        whole = slope[known + m]
        for t in range(first[m], first[m + 1]):
            for p in range(start[t], start[t + 1]):
                slope[parts[p]] += whole * share[t]


@kernel
def go_back(order, axes, stride, start, message, first_message, first, share, value, u, x):
    """Draw the variables of buckets into x, the last one first, by shares of terms.

    Bucket b has its messages at ``message[first_message[b]:]``, by the values of variables ``axes``
    from ``start[b]`` on; ``value`` of a term is that of its variable.
    """
    for b in range(order.size - 1, -1, -1):
        at = first_message[b]
        for a in range(start[b], start[b + 1]):
            at += x[axes[a]] * stride[a]
        t, end, left = first[message[at]], first[message[at] + 1], u[b]
        while t < end - 1 and left >= share[t]:
            left -= share[t]
            t += 1
        x[order[b]] = value[t]
