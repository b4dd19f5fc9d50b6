"""
The Ising model of the paper
============================

On a 30 x 30 lattice with noisy fields, a learned balancing function and the four fixed ones are run
side by side: how long is the burn-in, and how well do they mix? The answer for this model is that
the learned function does about as well as the best fixed one, without being told which that is.
"""

# %%
# The model
# ---------
# The fields are +1 in the central square and -1 around it, plus uniform noise up to 3 in size;
# neighbours are coupled with strength 1 and the lattice wraps around. The paper draws new fields
# for every chain; here all chains share one draw, so that they can be compared with each other.

import warnings

import matplotlib.pyplot as plt
import numpy as np

from sklsb import Ising, LSBSampler
from sklsb.diagnostics import autocorrelation, paper_ess
from sklsb.exceptions import FrozenSitesWarning, SeparatedModesWarning

warnings.filterwarnings(
    "ignore", r"\s*ArviZ is undergoing", FutureWarning
)  # about ArviZ itself
import arviz

field = np.full((30, 30), -1.0)
field[7:23, 7:23] = 1.0
field += 3.0 * np.random.default_rng(0).uniform(-1, 1, field.shape)
target = Ising.lattice(field, coupling=1.0)

# %%
# Five samplers
# -------------
# Thirty chains each, started from noise: ``init="uniform"``. ``keep_burn_in`` keeps every state on
# the way; then the sum of the spins is recorded after every transition. ``arviz.ess`` counts the
# effective draws of all chains together; ``paper_ess`` is the measure of the paper's tables, per
# window of 501 states.
#
# With strong fields and couplings some sites are decided: turning one of them against its field
# and its four neighbours can have a probability of exp(-16). They never change in a run of this
# length, and sklsb says so with a warning. Others change once in a while: 33 sweeps are too few for
# these, and another warning says that the chains disagree about them. Both are turned off here,
# because they would come with every run; the sites are counted below.

warnings.simplefilter("ignore", FrozenSitesWarning)
warnings.simplefilter("ignore", SeparatedModesWarning)

n_burn_in, statistic = 5000, {"sum": lambda x: x.sum(axis=(1, 2))}
samplers, arrivals, sums = {}, {}, {}
print("            paper ESS     ArviZ ESS   R-hat   acceptance")
for name in ("learned", "barker", "min", "sqrt", "max"):
    sampler = LSBSampler(
        name,
        n_chains=30,
        n_burn_in=n_burn_in,
        init="uniform",
        keep_burn_in=True,
        random_state=0,
    ).fit(target)
    recorded = sampler.sample(30_000, record=statistic)
    samplers[name] = sampler
    arrivals[name] = sampler.burn_in_["x"].sum(("row", "col")).to_numpy()
    sums[name] = recorded["sum"].to_numpy()
    del sampler.burn_in_  # 135 MB
    sizes = paper_ess(sums[name], 500)
    print(
        f"{name:10}{sizes.mean():5.2f} +- {sizes.std(ddof=1):.2f}"
        f"{float(arviz.ess(recorded)['sum']):14.0f}{float(arviz.rhat(recorded)['sum']):8.3f}"
        f"{float(sampler.sample_stats_['acceptance_rate'].mean()):13.2f}"
    )

# %%
# States
# ------
# The chains go on from where they are: some states, a sweep of 900 transitions apart.

states = samplers["learned"].sample(200, thin="sweep")["x"]
same = states.max(("chain", "draw")) == states.min(("chain", "draw"))
print(
    f"Sites that never differ in {200 * 30:,} states: {int(same.sum())} of {target.n_sites}"
)

# %%
# What it looks like
# ------------------
# A burn-in is over when the sum has settled: the learned function gets there among the first.
# Barker and min forget fastest once they are there, and the learned curve lies on theirs.

ink, red = "#16324f", "#d1263b"
styles = {"learned": "-", "barker": "--", "min": ":", "sqrt": "-.", "max": "-"}
looks = {name: {"color": "0.4", "linestyle": style} for name, style in styles.items()}
looks["learned"] = {"color": red, "linewidth": 2.2, "zorder": 3}

figure, ((image, arrival), (trace, memory)) = plt.subplots(
    2, 2, figsize=(10, 7), layout="constrained"
)
shown = image.imshow(states.mean(("chain", "draw")), cmap="PuOr", vmin=-1, vmax=1)
image.set(title="Mean of each spin", xticks=[], yticks=[])
figure.colorbar(shown, ax=image, shrink=0.85, ticks=[-1, 0, 1])
for name, look in looks.items():
    arrival.plot(arrivals[name].mean(axis=0), label=name, **look)
    memory.plot(autocorrelation(sums[name], 1500).mean(axis=0), label=name, **look)
for total, colour in zip(sums["learned"], (ink, "#2a9d8f", "#f2a03d"), strict=False):
    trace.plot(total, color=colour, linewidth=0.4)
arrival.set(title="Burn-in: sum of the spins, mean of 30 chains", xlabel="transitions")
trace.set(title="Draws: sum of the spins, 3 chains", xlabel="transitions")
memory.set(title="Autocorrelation of the sum", xlabel="lag (transitions)", ylim=(0, 1))
arrival.legend(frameon=False)
memory.legend(frameon=False)
for axis in (arrival, trace, memory):
    axis.spines[["top", "right"]].set_visible(False)
plt.show()
