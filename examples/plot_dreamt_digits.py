"""
An RBM of digits, sampled by several flips at a time
====================================================

A restricted Boltzmann machine is trained by contrastive divergence. Then one gradient of log p
proposes which pixels to change (``fast=True``), several at once (``n_flips="auto"``). In
:doc:`plot_rbm_digits` a machine is sampled one pixel at a time, with the exact log-ratios of all
changes.
"""

# %%
# Training
# --------
# The gradient of the log-likelihood by a weight is the difference of two means,
#
# .. math:: \frac{\partial}{\partial W_{ij}} \langle \log p(x) \rangle
#           = \langle x_i P(h_j = 1 | x) \rangle_\text{data} - \langle x_i P(h_j = 1 | x) \rangle_p
#
# and likewise for the biases. The second mean is taken over the batch after ten steps of block
# Gibbs sampling, as if these led from the data to p [1]_. Adam follows the gradient. The biases of
# the pixels start at the logits of their means [2]_: from zero, dark pixels would leave a mode of
# noise far from the data.
#
# More passes over the data are not always better. The Gibbs steps start at the data and do not see
# modes far from it; in the end these may have most of the probability. Only long chains show that.

import numpy as np
from scipy.special import expit, logit

from sklsb import RBM


def contrastive_divergence(data, n_hidden, n_epochs, rate=1e-3, n_gibbs=10, seed=0):
    """Return weights, biases of the visible units, and biases of the hidden units."""
    rng = np.random.default_rng(seed)

    def draw(p):
        return (rng.random(p.shape, dtype=np.float32) < p).astype(np.float32)

    weights = (0.01 * rng.standard_normal((data.shape[1], n_hidden))).astype(np.float32)
    visible = logit(np.clip(data.mean(axis=0), 0.01, 0.99)).astype(np.float32)
    hidden = np.zeros(n_hidden, dtype=np.float32)
    parameters = weights, visible, hidden
    means, squares, n_steps = [0.0] * 3, [0.0] * 3, 0
    for _ in range(n_epochs):
        order = rng.permutation(len(data))
        for batch in np.split(order, range(100, len(data), 100)):
            start = x = data[batch].astype(np.float32)
            h_start = h = expit(x @ weights + hidden)
            for _ in range(n_gibbs):
                x = draw(expit(draw(h) @ weights.T + visible))
                h = expit(x @ weights + hidden)
            by_weights = (start.T @ h_start - x.T @ h) / len(x)
            gradient = by_weights, (start - x).mean(axis=0), (h_start - h).mean(axis=0)
            n_steps += 1
            for k, (parameter, g) in enumerate(zip(parameters, gradient, strict=True)):
                means[k] = 0.9 * means[k] + 0.1 * g
                squares[k] = 0.999 * squares[k] + 0.001 * g**2
                spread = np.sqrt(squares[k] / (1 - 0.999**n_steps)) + 1e-8
                parameter += rate * (means[k] / (1 - 0.9**n_steps)) / spread
    return parameters


# %%
# Dreams
# ------
# A machine is trained for some seconds, then left to itself. In the burn-in the balancing function
# is learned, and the number of flips per gradient is raised until about 60% of the proposals are
# accepted. Then both are frozen; the Metropolis-Hastings acceptance keeps the chain exact.

import warnings

import matplotlib.pyplot as plt
from sklearn.datasets import load_digits

from sklsb import LSBSampler
from sklsb.diagnostics import autocorrelation
from sklsb.exceptions import SamplerWarning

# Some pixels at the border are white in all digits, and these runs are short.
warnings.filterwarnings("ignore", category=SamplerWarning)
machine = RBM(
    *contrastive_divergence(load_digits().data > 7, 100, n_epochs=100), shape=(8, 8)
)
settings = {"fast": True, "n_chains": 40}
sampler = LSBSampler(n_flips="auto", n_burn_in=5000, random_state=0, **settings).fit(machine)
dreams = sampler.sample(20, thin=200)["x"].to_numpy()[:20, -1]
print(f"{sampler.n_flips_} flips per gradient, acceptance", end=" ")
print(f"{float(sampler.sample_stats_['acceptance_rate'].mean()):.2f}")

figure, axes = plt.subplots(2, 10, figsize=(10, 2.5), layout="constrained")
for axis, image in zip(axes.flat, dreams, strict=True):
    axis.imshow(image, cmap="Greys", vmin=0, vmax=1)
    axis.set(xticks=[], yticks=[])
figure.suptitle("Drawn by the trained machine, each from a chain of its own")

# %%
# What several flips are worth
# ----------------------------
# How long does the number of dark pixels remember? Every transition takes one gradient. Block Gibbs
# sampling, ``GibbsSampler("layers")``, is faster still; first-order proposals are for energies
# without that structure: :doc:`plot_torch_energy`.

figure, axis = plt.subplots(figsize=(6, 3), layout="constrained")
for n in (1, sampler.n_flips_):
    one = LSBSampler(
        sampler.balancing_.tabulated(), n_flips=n, n_burn_in=1000, random_state=1
    )
    one.set_params(**settings).fit(machine)
    ink = one.sample(2000, record={"ink": lambda x: x.sum(axis=(1, 2))})["ink"].to_numpy()
    memory = autocorrelation(ink, 60).mean(axis=0)
    print(f"n_flips={n}: {1 + 2 * memory[1:].sum():.1f} gradients per independent draw")
    axis.plot(memory, label=f"n_flips={n}")
axis.set(title="Several flips at once forget sooner", xlabel="gradients")
axis.set_ylabel("autocorrelation of dark pixels")
axis.legend()
plt.show()

# %%
# .. [1] G. E. Hinton, "Training products of experts by minimizing contrastive divergence", Neural
#    Computation 14 (2002).
# .. [2] G. E. Hinton, "A practical guide to training restricted Boltzmann machines", 2010.
