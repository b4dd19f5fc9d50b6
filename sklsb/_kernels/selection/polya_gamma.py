r"""Draws of Polya-Gamma variables PG(m, c), m a positive integer.

PG(m, c) is the sum of Gamma(m, 1) variables, one for each k = 1, 2, ..., divided by
2 pi^2 ((k - 1/2)^2 + (c / (2 pi))^2) (N. G. Polson, J. G. Scott and J. Windle, "Bayesian inference
for logistic models using Polya-Gamma latent variables", JASA 2013). Three ways, by m and c:

- c above 40 + log m: the density is an alternating series, in which all terms but the first have
  together at most m exp(-c) of the probability, so less than 2^-53. The first term is an inverse
  Gaussian density.
- m up to `MOST_SUMMED`: a sum of m independent variables PG(1, c), by the alternating series of
  L. Devroye ("On exact simulation algorithms for some distributions related to Jacobi theta
  functions", Statistics and Probability Letters 2009), which is exact.
- m above: the first gamma variables as they are. What is left of the sum, `remainder`, is
  replaced by a shifted gamma variable with the same mean, variance
  and third cumulant. The distribution function is off by less than 1e-8 (1e-10 for c up to 6),
  which the tests show by integrals of the characteristic functions. Time does not grow with m.

A library is not asked: kernels call nothing compiled elsewhere, and take their numbers from a seed.
"""

import math

import numpy as np

from sklsb._kernels._jit import called, inlined, kernel
from sklsb._kernels.numeric import split_mix

# Beyond, a sum of gamma variables is faster.
MOST_SUMMED = 8
_LEAST_TERMS = 8
_SMALLEST = 2.0**-53
_CUT = 0.64  # where one series of Devroye's hands over to the other
_LARGE = 40.0


@inlined
def _above_zero(seed):
    """Return the next state and a uniform number in (0, 1]."""
    seed, u = split_mix(seed)
    return seed, 1.0 - u


@inlined
def exponential(seed):
    """Return the next state and an exponential variable."""
    seed, u = _above_zero(seed)
    return seed, -math.log(u)


@inlined
def normal(seed):
    """Return the next state and a standard normal variable, by the polar method."""
    while True:
        seed, a = split_mix(seed)
        seed, b = split_mix(seed)
        a, b = 2.0 * a - 1.0, 2.0 * b - 1.0
        square = a * a + b * b
        if 0.0 < square < 1.0:
            return seed, a * math.sqrt(-2.0 * math.log(square) / square)


@called
def gamma(shape, seed):
    """Return the next state and a Gamma(shape, 1) variable, shape at least 1.

    G. Marsaglia and W. W. Tsang, "A simple method for generating gamma variables", ACM TOMS 2000.
    """
    d = shape - 1.0 / 3.0
    c = 1.0 / math.sqrt(9.0 * d)
    while True:
        seed, x = normal(seed)
        v = 1.0 + c * x
        if v <= 0.0:
            continue
        v = v * v * v
        seed, u = _above_zero(seed)
        if math.log(u) < 0.5 * x * x + d * (1.0 - v + math.log(v)):
            return seed, d * v


@inlined
def inverse_gaussian(mean, shape, seed):
    """Return the next state and an inverse Gaussian variable.

    J. R. Michael et al., "Generating random variates using transformations with multiple roots",
    The American Statistician 1976; the smaller root is written without a difference.
    """
    seed, x = normal(seed)
    w = mean * x * x / shape
    smaller = mean / (1.0 + 0.5 * w + math.sqrt(w + 0.25 * w * w))
    seed, u = split_mix(seed)
    return seed, smaller if u * (mean + smaller) <= mean else mean * mean / smaller


@inlined
def _truncated(z, seed):
    """Return the next state and an inverse Gaussian variable, mean 1 / z, shape 1, below _CUT."""
    if z * _CUT < 1.0:
        while True:
            while True:
                seed, a = exponential(seed)
                seed, b = exponential(seed)
                if a * a * _CUT <= 2.0 * b:
                    break
            x = 1.0 + _CUT * a
            x = _CUT / (x * x)
            seed, u = split_mix(seed)
            if u < math.exp(-0.5 * z * z * x):
                return seed, x
    while True:
        seed, x = inverse_gaussian(1.0 / z, 1.0, seed)
        if x < _CUT:
            return seed, x


@inlined
def _right_share(z):
    """Return the probability that a proposal lies above _CUT."""
    rate = 0.125 * math.pi**2 + 0.5 * z * z
    right = 0.5 * math.pi / rate * math.exp(-rate * _CUT)
    # 2 exp(-z) P(X < _CUT) of an inverse Gaussian variable X of mean 1 / z and shape 1.
    root = math.sqrt(0.5 / _CUT)
    left = math.exp(-z) * math.erfc(root * (1.0 - _CUT * z))
    left += math.exp(z) * math.erfc(root * (1.0 + _CUT * z))
    return right / (right + left)


@called
def _one(z, right_share, seed):
    """Return the next state and 4 PG(1, 2 z)."""
    rate = 0.125 * math.pi**2 + 0.5 * z * z
    while True:
        seed, u = split_mix(seed)
        if u < right_share:
            seed, x = exponential(seed)
            x = _CUT + x / rate
            power = 0.5 * math.pi**2 * x
        else:
            seed, x = _truncated(z, seed)
            power = 2.0 / x
        # Terms of the series, over the first: (2 n + 1) exp(-n (n + 1) power), with signs.
        seed, u = split_mix(seed)
        total, n = 1.0, 0.0
        while True:
            n += 1.0
            total -= (2.0 * n + 1.0) * math.exp(-n * (n + 1.0) * power)
            if u <= total:
                return seed, x
            n += 1.0
            total += (2.0 * n + 1.0) * math.exp(-n * (n + 1.0) * power)
            if u > total:
                break


@inlined
def _tail(s, b2, n):
    """Sum of ((k - 1/2)^2 + b2)^-s over k > n, by Euler and Maclaurin's formula; b2 < n^2 / 9."""
    ratio, term, integral = b2 / (n * n), n / n ** (2 * s), 0.0
    for j in range(12):
        integral += term / (2 * s + 2 * j - 1)
        term *= -ratio * (s + j) / (j + 1)
    f = (n * n + b2) ** -s
    q = 1.0 / (n * n + b2)
    first = -2.0 * s * n * q * f
    third = 4.0 * s * (s + 1) * n * q * q * f * (3.0 - 2.0 * (s + 2) * n * n * q)
    return integral + first / 24.0 - 7.0 / 5760.0 * third


@inlined
def n_terms(c):
    """Return how many gamma variables are drawn as they are."""
    return _LEAST_TERMS + int(0.5 * c)


@inlined
def remainder(c):
    """Return shift, scale and shape of what stands for the rest of the sum, times 2 pi^2.

    For m = 1; shift and shape are in proportion to m.
    """
    n, b2 = n_terms(c), (0.5 * c / math.pi) ** 2
    mean = 0.5 * math.pi**2 * (1.0 - c * c / 12.0)
    if c > 1e-4:
        mean = math.pi**2 * math.tanh(0.5 * c) / c
    for k in range(n):
        mean -= 1.0 / ((k + 0.5) * (k + 0.5) + b2)
    variance, third = _tail(2, b2, n), 2.0 * _tail(3, b2, n)
    scale = 0.5 * third / variance
    shape = variance / (scale * scale)
    return mean - scale * shape, scale, shape


@inlined
def _many(m, c, seed):
    """Return the next state and PG(m, c), from gamma variables."""
    shift, scale, shape = remainder(c)
    b2 = (0.5 * c / math.pi) ** 2
    seed, x = gamma(m * shape, seed)
    result = m * shift + scale * x
    for k in range(n_terms(c)):
        seed, x = gamma(np.float64(m), seed)
        result += x / ((k + 0.5) * (k + 0.5) + b2)
    return seed, result / (2.0 * math.pi**2)


@called
def polya_gamma(m, c, seed):
    """Return the next state (uint64) of split_mix and PG(m, c)."""
    c = abs(c)
    if c > _LARGE + math.log(m):
        return inverse_gaussian(0.5 * m / c, 0.25 * m * m, seed)
    if m > MOST_SUMMED:
        return _many(m, c, seed)
    share, result = _right_share(0.5 * c), 0.0
    for _ in range(m):
        seed, x = _one(0.5 * c, share, seed)
        result += x
    return seed, 0.25 * result


@kernel
def draw_polya_gamma(m, c, u, out):
    """Fill ``out`` with draws of PG(m[i], c[i]), all from one uniform number u."""
    seed = np.uint64(np.int64(u / _SMALLEST))
    for i in range(out.size):
        seed, out[i] = polya_gamma(m[i], c[i], seed)
