"""
An energy on torch
==================

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
from torch.nn.functional import softplus

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
schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0, 250)
for _ in range(250):
    own = chains.step(10).state_tensor_
    loss = log_prob(own).mean() - log_prob(images[torch.randint(len(images), (64,))]).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    schedule.step()

# %%
# Draws from the trained network: after seconds of training, some are digits and others are not.
sampler = LSBSampler("barker", n_flips="auto", init="uniform", **settings).fit(target)
draws = sampler.sample(5, thin=200)["x"].to_numpy()[:20, -1].reshape(-1, 8, 8)
figure, axes = plt.subplots(2, 10, figsize=(10, 2.2), layout="constrained")
for axis, image in zip(axes.flat, draws, strict=True):
    axis.imshow(image, cmap="Greys")
    axis.set(xticks=[], yticks=[])
plt.show()
