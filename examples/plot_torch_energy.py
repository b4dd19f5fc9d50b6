"""
An energy-based model of digits in PyTorch
==========================================

Any differentiable function of torch can be a log-density. Here it is a small convolutional network,
trained on handwritten digits with the sampler itself, and sampled by first-order proposals.
"""

# %%
# A log-density, trained by its own draws
# ---------------------------------------
# The gradient of the log-likelihood is the mean gradient of log p over the data, minus its mean
# over the model's own draws. ``step`` moves the chains that make these draws under the present
# weights, from where they are, and ``state_tensor_`` has their states.

import matplotlib.pyplot as plt
import torch
from sklearn.datasets import load_digits
from torch.nn.functional import pad, softplus

from sklsb import LSBSampler, TorchTarget

images = torch.as_tensor(load_digits().data > 7, dtype=torch.float32)
torch.manual_seed(0)
torch.set_num_threads(1)  # small tensors


class LogDensity(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.bias = torch.nn.Parameter(torch.logit(images.mean(0), eps=0.01))
        self.parts, self.detectors = torch.nn.Conv2d(1, 24, 5), torch.nn.Linear(24 * 16, 128)

    def forward(self, x):
        parts = softplus(self.parts(2.0 * x.view(-1, 1, 8, 8) - 1.0)).flatten(1)
        return x @ self.bias + 0.5 * softplus(self.detectors(parts) - 1.0).sum(1)


log_prob = LogDensity()
target = TorchTarget(log_prob, n_sites=64)
settings = {"fast": True, "n_chains": 64, "random_state": 0}
chains = LSBSampler("barker", n_flips=4, n_burn_in=10, init="uniform", **settings).fit(target)
optimizer = torch.optim.Adam(log_prob.parameters(), lr=4e-3)
schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0, 1000)
for _ in range(1000):
    own = chains.step(10).state_tensor_
    loss = log_prob(own).mean() - log_prob(images[torch.randint(len(images), (64,))]).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    schedule.step()

# %%
# What it has learned
# -------------------
# The sampler starts anew, at states of noise. Independent pixels, each as often dark as in the
# data, show what the network has learned beyond that: strokes. After half a minute of training many
# draws are digits, others are not, and pairs of pixels go together much as in the data.
sampler = LSBSampler("barker", n_flips="auto", init="uniform", **settings).fit(target)
draws = torch.as_tensor(sampler.sample(20, thin=50)["x"].values.reshape(-1, 64)).float()
independent = torch.bernoulli(images.mean(0).expand(len(draws), -1))
shown = {"data": images[::170], "independent pixels": independent, "draws": draws[19::20]}

figure = plt.figure(figsize=(10, 3.6), layout="constrained")
left, right = figure.subfigures(1, 2, width_ratios=(2, 1))
for axis, (name, rows) in zip(left.subplots(3), shown.items(), strict=True):
    framed = pad(rows[:10].view(-1, 8, 8), (1, 1, 1, 1), value=0.3)
    axis.imshow(torch.hstack(tuple(framed)), cmap="Greys")
    axis.set_axis_off()
    axis.set_title(name, loc="left")
pairs = torch.triu_indices(64, 64, 1).unbind()
axis = right.subplots()
for name, x, color in (("independent pixels", independent, "0.6"), ("draws", draws, "C0")):
    axis.plot(
        images.T.cov()[pairs], x.T.cov()[pairs], ".", color=color, markersize=3, label=name
    )
axis.axline((0, 0), slope=1, color="black", linewidth=1)
axis.set(title="Covariance of two pixels", xlabel="in the data", ylabel="in the draws")
axis.legend(loc="lower right", markerscale=3)
plt.show()
