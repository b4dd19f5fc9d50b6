"""Time of sampling inside a training loop, against the gradients that it cannot avoid.

Persistent contrastive divergence of a multilayer perceptron on 28 x 28 binary pixels: 64 chains
make 20 transitions between two steps of the optimizer, which changes the weights. Beside it, a
small convolutional energy: a transition against one value and gradient. The parts take turns in
one run; the best of many rounds counts. One thread of torch.

    python benchmarks/training_loop.py [--rounds 30]
"""

import argparse
import time
import warnings

import torch
from torch import nn

from sklsb import LSBSampler, TorchTarget
from sklsb.exceptions import SamplerWarning

N_CHAINS, N_TRANSITIONS = 64, 20


class Perceptron(nn.Module):
    """784 - 256 - 256 - 1."""

    def __init__(self):
        super().__init__()
        layers = nn.Linear(784, 256), nn.Softplus(), nn.Linear(256, 256), nn.Softplus()
        self.net = nn.Sequential(*layers, nn.Linear(256, 1), nn.Flatten(0))

    def forward(self, x):
        return self.net(x)


class Convolutional(nn.Module):
    """Two layers of eight channels on 28 x 28 pixels."""

    def __init__(self):
        super().__init__()
        layers = nn.Conv2d(1, 8, 3, 2), nn.Softplus(), nn.Conv2d(8, 8, 3, 2), nn.Softplus()
        self.net = nn.Sequential(nn.Unflatten(1, (1, 28, 28)), *layers)

    def forward(self, x):
        return self.net(x).sum((1, 2, 3))


def gradients(module, n):
    """Evaluate a value and its gradient with respect to the pixels, n times."""
    x = torch.randint(2, (N_CHAINS, 784)).float()
    for _ in range(n):
        given = x.clone().requires_grad_()
        torch.autograd.grad(module(given).sum(), given)


def seconds(work):
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def compare(name, module, rounds):
    """Print the times of a loop's step, a call of `step`, and the bare gradients."""
    target = TorchTarget(module, 784)
    settings = {"fast": True, "n_chains": N_CHAINS, "n_burn_in": 20, "init": "uniform"}
    sampler = LSBSampler("barker", random_state=0, n_jobs=1, **settings).fit(target)
    data = torch.randint(2, (N_CHAINS, 784)).float()
    optimizer = torch.optim.Adam(module.parameters(), lr=1e-4)

    def train():
        own = sampler.step(N_TRANSITIONS).state_tensor_.float()
        loss = module(own).mean() - module(data).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    works = {
        "bare gradients": lambda: gradients(module, N_TRANSITIONS),
        "step(20)": lambda: sampler.step(N_TRANSITIONS),
        "step of the loop": train,
        "sample(1, thin=20)": lambda: sampler.sample(1, thin=N_TRANSITIONS),
    }
    best = dict.fromkeys(works, float("inf"))
    for _ in range(rounds):
        for work, run in works.items():
            best[work] = min(best[work], seconds(run))
    print(f"{name}, {N_CHAINS} chains, {N_TRANSITIONS} transitions")
    for work, took in best.items():
        print(f"  {work:20} {1e3 * took:7.2f} ms {took / best['bare gradients']:6.2f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=30)
    options = parser.parse_args()
    warnings.simplefilter("ignore", SamplerWarning)
    torch.set_num_threads(1)
    torch.manual_seed(0)
    compare("perceptron", Perceptron(), options.rounds)
    compare("convolutional", Convolutional(), options.rounds)


if __name__ == "__main__":
    main()
