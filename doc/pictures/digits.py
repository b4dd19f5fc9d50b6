"""Draws of a restricted Boltzmann machine that was trained on digits."""

import warnings

import matplotlib.pyplot as plt
from sklearn.datasets import load_digits
from sklearn.neural_network import BernoulliRBM

from sklsb import RBM, GibbsSampler
from sklsb.exceptions import SamplerWarning

warnings.simplefilter("ignore", SamplerWarning)  # some pixels are white in all digits
trained = BernoulliRBM(n_components=100, learning_rate=0.003, n_iter=120, random_state=0)
machine = RBM.from_sklearn(trained.fit(load_digits().data > 7), shape=(8, 8))
sampler = GibbsSampler("layers", n_chains=12, n_burn_in=1000, init="uniform", random_state=0)
draws = sampler.fit(machine).sample(100, thin=10)["x"]
figure, axes = plt.subplots(4, 3, figsize=(4, 5.6), layout="constrained")
for axis, image in zip(axes.flat, draws[:, -1], strict=True):
    axis.imshow(image, cmap="Greys", vmin=0, vmax=1)
    axis.set(xticks=[], yticks=[])
