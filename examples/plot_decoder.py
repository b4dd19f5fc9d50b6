"""
Decode what a noisy channel garbled
===================================

The Voyager probes sent their pictures home in a code: for each bit, two parity checks of this bit
and the six before it are sent. Here one check in twelve arrives wrong. The decoder is a Bayesian
network like any other, so it can also be told what is known about pictures.
"""

# %%
# The message, the code and the channel
# -------------------------------------
# Sixteen handwritten digits of 8 x 8 pixels are sent pixel by pixel. The checks are those of the
# Voyager code, 171 and 133 in octal digits.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits

from sklsb import MarkovNetwork, exact

WRONG = 0.08
digits = (load_digits().images > 7).astype(int)
sent = digits[:16].ravel()
checks = np.array([[int(bit) for bit in f"{check:07b}"] for check in (0o171, 0o133)])
windows = np.lib.stride_tricks.sliding_window_view(np.r_[np.zeros(6, int), sent], 7)
code = windows @ checks.T % 2
received = code ^ (np.random.default_rng(0).random(code.shape) < WRONG)

# %%
# The decoder
# -----------
# A factor for each bit says how probable the two checks received are, given this bit and the six
# before it. There are 1,024 unknown bits, but only seven are tied at a time. So elimination finds
# the probability of each bit. For such a code this is known as the BCJR decoder.

sevens = np.moveaxis(np.indices([2] * 7), 0, -1)  # all values of seven bits
factors = []
for i, seen in enumerate(received):
    likelihood = np.where(sevens @ checks.T % 2 == seen, 1 - WRONG, WRONG).prod(axis=-1)
    unsent = max(0, 6 - i)  # bits before the first, which are 0
    factors.append((range(i - 6 + unsent, i + 1), likelihood[(0,) * unsent]))
decoder = MarkovNetwork([2] * sent.size, factors)
by_code = exact.marginals(decoder)["p"].sel(state=1).values

# %%
# What is known about pictures
# ----------------------------
# Neighbouring pixels tend to be equal. The digits that are not sent tell how much more often than
# by chance. With a factor for each pair of neighbours this is no code of the textbooks any more.
# Elimination takes it all the same: ``elimination_cost`` says beforehand that it is little work.
# As a model of pictures it is rough, but the checks leave little to it.


def ratio(one, other):
    """Return how much more probable pairs of values are than by chance."""
    table = np.histogram2d(one.ravel(), other.ravel(), bins=2)[0] / one.size
    return table / np.outer(table.sum(axis=1), table.sum(axis=0))


others, site = digits[16:], np.arange(sent.size).reshape(-1, 8, 8)
picture = [((i,), [1 - others.mean(), others.mean()]) for i in range(sent.size)]
for cut in (np.s_[:, :, :-1], np.s_[:, :, 1:]), (np.s_[:, :-1], np.s_[:, 1:]):
    tied = ratio(*(others[half] for half in cut))
    picture += [(pair, tied) for pair in zip(*(site[half].flat for half in cut), strict=True)]
both = MarkovNetwork([2] * sent.size, factors + picture)
print(f"2 to the {exact.elimination_cost(both, 'marginals').log2_work:.0f} table entries")
by_both = exact.marginals(both)["p"].sel(state=1).values

# %%
# How many bits are right
# -----------------------
# The probabilities say which bits are in doubt, and so how many may be wrong. Errors come in
# bursts, as grey patches show.

for name, p in {"code alone": by_code, "code and picture": by_both}.items():
    wrong = (p > 0.5) != sent
    expected = np.minimum(p, 1 - p).sum()
    print(f"{name}: {wrong.sum()} of {sent.size} bits are wrong, {expected:.0f} expected")

figure, axes = plt.subplots(3, 1, figsize=(9, 3.2), layout="constrained")
images = {
    "Sent": sent,
    "Decoded by the code alone: grey where in doubt": by_code,
    "Decoded by the code and what is known about pictures": by_both,
}
for axis, (title, p) in zip(axes, images.items(), strict=True):
    side_by_side = np.hstack(p.reshape(-1, 8, 8))
    axis.imshow(side_by_side, cmap="Greys", vmin=0, vmax=1)
    axis.set(xticks=[], yticks=[])
    axis.set_title(title, loc="left")
plt.show()
