"""Prepared plans: milliseconds per question about Bayesian networks, and of other libraries.

Each question asks for all marginals of a BIF file given five variables, whose values are drawn from
the network; 30 questions, in turn by each way. pyAgrum's lazy propagation is compared if it is
installed: ``pip install pyagrum``. The last line draws all states of a hidden Markov model of 500
steps and 3 states, whose tables are new each time. Times are those of the processor.

    python benchmarks/prepared.py FILE.bif.gz ... [--rounds 3] [--json prepared.json]
"""

import argparse
import gzip
import json
import tempfile
import time
from pathlib import Path

import numpy as np

from sklsb import MarkovNetwork, exact

try:
    import pyagrum
except ImportError:
    pyagrum = None


def questions(network, n=30, seed=0):
    """Return evidence that has positive probability, by names."""
    rng = np.random.default_rng(seed)
    draws = exact.prepare(network).sample(n, random_state=seed)
    asked = []
    for x in draws:
        sites = rng.choice(network.n_sites, min(5, network.n_sites - 2), replace=False).tolist()
        names = network.state_names
        asked.append({network.label(i): names[i][x[i]] for i in sites})
    return asked


def by_pyagrum(path, network):
    """Return a function that gives the marginals of all variables, as a dict."""
    text = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    with tempfile.TemporaryDirectory() as folder:
        plain = Path(folder, "network.bif")
        plain.write_bytes(text)
        net = pyagrum.loadBN(str(plain))
    engine = pyagrum.LazyPropagation(net)
    engine.setNumberOfThreads(1)
    names = network.names

    def ask(evidence):
        engine.setEvidence(evidence)
        engine.makeInference()
        return {name: engine.posterior(name).toarray() for name in names}

    return ask


def seconds(ask, asked):
    began = time.process_time()
    for evidence in asked:
        ask(evidence)
    return (time.process_time() - began) / len(asked)


def compared(path, rounds):
    network = MarkovNetwork.from_bif(path)
    plan, asked = exact.prepare(network), questions(network)
    ways = {
        "prepared": plan.marginals,
        "exact.marginals": lambda evidence: exact.marginals(network, evidence=evidence),
    }
    if pyagrum is not None:
        ways["pyagrum"] = by_pyagrum(path, network)
        found, other = plan.marginals(asked[0]), ways["pyagrum"](asked[0])
        worst = max(float(np.abs(found[name] - other[name]).max()) for name in other)
        assert worst < 1e-6, f"the two disagree by {worst}"
    times = {way: [] for way in ways}
    for _ in range(rounds):
        for way, ask in ways.items():
            ask(asked[0])
            times[way].append(1e3 * seconds(ask, asked))
    return {way: float(np.median(mine)) for way, mine in times.items()}


def hidden_markov(rounds, n=500, k=3, seed=0):
    """Milliseconds to fill new tables into a plan and draw all states once."""
    rng = np.random.default_rng(seed)
    scopes = [(0,), *((i, i + 1) for i in range(n - 1)), *((i,) for i in range(n))]

    def tables():
        return [
            rng.dirichlet(np.ones(k)),
            *rng.dirichlet(np.ones(k), (n - 1, k)),
            *rng.random((n, k)),
        ]

    plan = exact.prepare(MarkovNetwork([k] * n, zip(scopes, tables(), strict=True)))
    asked = [np.concatenate([table.ravel() for table in tables()]) for _ in range(30)]

    def ask(entries):
        plan.with_tables(entries).sample(1, random_state=0)

    ask(asked[0])
    return {"prepared": float(np.median([1e3 * seconds(ask, asked) for _ in range(rounds)]))}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("files", nargs="*", type=Path)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    found = {path.name: compared(path, options.rounds) for path in options.files}
    found["hidden Markov, 500 x 3"] = hidden_markov(options.rounds)
    for name, times in found.items():
        print(f"{name:24}", *(f"{way} {ms:.3g} ms" for way, ms in times.items()), sep="  ")
    if options.json:
        options.json.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
