"""Training of models whose samples are wanted: restricted Boltzmann machines from binary data."""

from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.special import expit, logit

from sklsb.balancing.learning import Adam
from sklsb.samplers._run.checks import check_count
from sklsb.targets._checks import as_array
from sklsb.targets.rbm import RBM

Single = NDArray[np.float32]


def contrastive_divergence(
    data: Any,
    n_hidden: int,
    *,
    n_gibbs: int = 10,
    n_epochs: int = 10,
    batch_size: int = 100,
    learning_rate: float = 1e-3,
    shape: tuple[int, int] | None = None,
    random_state: Any = None,
) -> RBM:
    r"""Train a restricted Boltzmann machine by contrastive divergence, CD-k.

    The gradient of the log-likelihood is the difference of two means [1]_,

    .. math:: \frac{\partial}{\partial W_{ij}} \langle \log p(x) \rangle
              = \langle x_i P(h_j = 1 | x) \rangle_\text{data}
              - \langle x_i P(h_j = 1 | x) \rangle_p

    and likewise for the biases. The second mean is over the batch after k = ``n_gibbs`` steps of
    block Gibbs sampling: biased for small k, maximum likelihood in the limit. Adam follows it.

    Parameters
    ----------
    data : array_like or sparse matrix of shape (n_samples, n_visible)
        States of 0 and 1.
    n_hidden : int
        Number of hidden units.
    n_gibbs : int, default=10
        Block Gibbs steps per gradient, starting at the data.
    n_epochs : int, default=10
        Passes over the data, each in a new order.
    batch_size : int, default=100
        Samples per gradient; the last batch of a pass may be smaller.
    learning_rate : float, default=1e-3
        Learning rate of Adam.
    shape : tuple of int, optional
        (rows, cols) if the visible units are the pixels of an image.
    random_state : int, numpy.random.Generator or None
        Seed. The same seed gives the same machine in the same environment, with the same number of
        threads of the matrix product.

    Returns
    -------
    RBM
        The machine; computed in float32.

    Raises
    ------
    ValueError
        If data is not a non-empty matrix of 0 and 1, a number is out of range, or the parameters
        do not stay finite.
    TypeError
        If a count is not an integer, or data is a masked array.

    Notes
    -----
    The visible biases start at the logit of each pixel's mean, clipped to 0.01 and 0.99 [2]_; from
    zero, dark pixels would leave a mode of noise far from the data. Hidden biases start at zero,
    weights at normal numbers with standard deviation 0.01.

    The Gibbs steps start at the data and do not see modes far from it. Too many passes can leave
    most of the probability in such a mode; only long chains show it.

    References
    ----------
    .. [1] G. E. Hinton, "Training products of experts by minimizing contrastive divergence",
       Neural Computation 14 (2002).
    .. [2] G. E. Hinton, "A practical guide to training restricted Boltzmann machines", 2010.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from sklsb.samplers import contrastive_divergence
    >>> data = load_digits().data > 7
    >>> machine = contrastive_divergence(data, 20, n_epochs=5, shape=(8, 8), random_state=0)
    >>> machine
    RBM(8 x 8 visible units, 20 hidden)
    >>> bool(machine.log_prob(data).mean() > machine.log_prob(~data).mean())
    True
    """
    counts = {"n_hidden": n_hidden, "n_gibbs": n_gibbs, "batch_size": batch_size}
    for name, count in counts.items():
        check_count(count, name, 1)
    check_count(n_epochs, "n_epochs", 0)
    if not 0 <= learning_rate < np.inf:
        raise ValueError(f"learning_rate is {learning_rate}; it must be in [0, inf).")
    x = _binary(data)
    rng = np.random.default_rng(random_state)
    mean = np.clip(x.mean(axis=0), 0.01, 0.99)
    weights = (0.01 * rng.standard_normal((x.shape[1], n_hidden))).astype(np.float32)
    parameters = [weights, logit(mean).astype(np.float32), np.zeros(n_hidden, dtype=np.float32)]
    optimizers = [Adam(learning_rate) for _ in parameters]
    for _ in range(n_epochs):
        order = rng.permutation(len(x))
        for begin in range(0, len(x), batch_size):
            batch = x[order[begin : begin + batch_size]].astype(np.float32)
            gradients = _gradients(batch, parameters, n_gibbs, rng)
            for parameter, optimizer, gradient in zip(
                parameters, optimizers, gradients, strict=True
            ):
                parameter += optimizer.step(gradient)
    if not all(np.isfinite(parameter).all() for parameter in parameters):
        raise ValueError(
            f"The weights do not stay finite with learning_rate {learning_rate}; make it smaller."
        )
    weights, visible_bias, hidden_bias = parameters
    return RBM(weights, visible_bias, hidden_bias, shape)


def _binary(data: Any) -> NDArray[np.int8]:
    x = data.toarray() if sp.issparse(data) else as_array(data, "data")
    if x.ndim != 2 or not x.size:
        raise ValueError(
            f"data has shape {x.shape}; it must have shape (n_samples, n_visible), neither zero."
        )
    if x.dtype.kind not in "buif" or not ((x == 0) | (x == 1)).all():
        raise ValueError(
            "data has entries other than 0 and 1; binarize them, as data > threshold does."
        )
    return x.astype(np.int8)


def _gradients(
    x: Single, parameters: list[Single], n_gibbs: int, rng: np.random.Generator
) -> list[NDArray[Any]]:
    """Return the gradients of minus the log-likelihood: means over chains minus means over data."""
    weights, visible_bias, hidden_bias = parameters

    def draw(p: Single) -> Single:
        return (rng.random(p.shape, dtype=np.float32) < p).astype(np.float32)

    data, hidden = x, expit(x @ weights + hidden_bias)
    start = hidden
    for _ in range(n_gibbs):
        x = draw(expit(draw(hidden) @ weights.T + visible_bias))
        hidden = expit(x @ weights + hidden_bias)
    n = np.float32(len(x))
    return [
        (x.T @ hidden - data.T @ start) / n,
        (x - data).mean(axis=0),
        (hidden - start).mean(axis=0),
    ]
