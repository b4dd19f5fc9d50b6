"""Random streams: where they come from, their purposes, and how numbers are drawn from them.

Every chain has a stream for each purpose. The stream "chain" drives its transitions; the others are
spawned from it when first needed, by a key that names the purpose, so a new purpose never shifts
the numbers of another. All keys contain a constant of the package, so no stream is one that a user
spawns from the same seed.
"""

import copy
import numbers
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from sklsb._kernels.spread import spread
from sklsb._system.arrays import Array, Ints

if TYPE_CHECKING:
    from sklsb._kernels.facts import Choosing, Rule

PURPOSES = ("chain", "start", "coin", "redraw", "swap", "scout", "pilot", "workers")
_PACKAGE = int.from_bytes(b"lsb", "big")
# From here on a compiled loop makes the numbers of a transition from one word of the stream.
MANY = 64


def seed_sequence(random_state: Any) -> np.random.SeedSequence:
    """Return the seed sequence of a random state, or raise an error.

    A SeedSequence is not changed; a Generator or RandomState is advanced by one draw.
    """
    if isinstance(random_state, np.random.SeedSequence):
        return random_state
    if isinstance(random_state, np.random.Generator):
        return np.random.SeedSequence(random_state.integers(2**32, size=4).tolist())
    if isinstance(random_state, np.random.RandomState):
        words = random_state.randint(2**32, size=4, dtype=np.uint32)
        return np.random.SeedSequence(words.tolist())
    if random_state is None:
        return np.random.SeedSequence()
    if isinstance(random_state, numbers.Integral) and not isinstance(random_state, bool):
        if random_state < 0:
            raise ValueError(f"random_state is {random_state}; a seed must not be negative.")
        return np.random.SeedSequence(int(random_state))
    raise TypeError(
        f"random_state is {random_state!r}; give an int, None, a numpy SeedSequence "
        "or a numpy Generator or RandomState."
    )


def _child(parent: np.random.SeedSequence, *key: int) -> np.random.Generator:
    own = np.random.SeedSequence(parent.entropy, spawn_key=(*parent.spawn_key, *key))
    return np.random.default_rng(own)


def spawn(random_state: Any, n: int, first: int = 0) -> list[np.random.Generator]:
    """Return independent streams of n chains, numbered from ``first``."""
    parent = seed_sequence(random_state)
    return [_child(parent, _PACKAGE, c) for c in range(first, first + n)]


def uniforms(rng: np.random.Generator, n: int, width: int) -> Array:
    """Draw the uniform numbers of n transitions that take ``width`` each; shape (n, width)."""
    if width < MANY:
        return rng.random((n, width))
    out = np.empty((n, width))
    spread(words(rng, n), out)
    return out


def words(rng: np.random.Generator, n: int) -> NDArray[np.uint64]:
    """Draw n words of 64 bits."""
    return rng.integers(2**64, size=n, dtype=np.uint64)


class Streams:
    """The streams of some chains, numbered from ``first`` among all chains."""

    first = 0

    def __init__(self, chain: list[np.random.Generator], first: int = 0):
        self._by_purpose = {"chain": chain}
        if first:
            self.first = first

    def __len__(self) -> int:
        return len(self.chain)

    @property
    def chain(self) -> list[np.random.Generator]:
        """The streams that drive the transitions."""
        return self._by_purpose["chain"]

    def of(self, purpose: str, place: int = 0) -> list[np.random.Generator]:
        """Return the streams of a purpose, one per chain; ``place`` tells several of them apart."""
        if purpose not in PURPOSES:
            raise ValueError(f"purpose is {purpose!r}; it must be one of {list(PURPOSES)}.")
        name = f"{purpose}.{place}" if place else purpose
        if name not in self._by_purpose:
            key = (_PACKAGE, PURPOSES.index(purpose), place)
            made = [
                _child(rng.bit_generator.seed_seq, *key)  # type: ignore[arg-type]
                for rng in self.chain
            ]
            # Another thread may have made them meanwhile.
            self._by_purpose.setdefault(name, made)
        return self._by_purpose[name]

    def root(self, purpose: str) -> np.random.SeedSequence:
        """Return a seed for a purpose that all chains share."""
        first: Any = self.chain[0].bit_generator.seed_seq
        key = (*first.spawn_key, _PACKAGE, PURPOSES.index(purpose))
        return np.random.SeedSequence(first.entropy, spawn_key=key)

    def copy(self) -> "Streams":
        """Return an independent copy, which gives the same numbers."""
        return copy.deepcopy(self)

    def pairs(self, n: int) -> Array:
        """Draw n pairs of uniform numbers for each chain; shape (n_chains, n, 2)."""
        return np.stack([rng.random((n, 2)) for rng in self.chain])

    def numbers(self, rule: "Rule", c: int, n: int, spread: bool = False) -> Array:
        """Draw the numbers of n transitions of chain c, one transition after another.

        Where a word makes those of a transition, to ``spread`` them is left to the kernel: then
        these are n words, and room for the numbers of one.

        Coins of mixtures have their own streams, so the next rule is known before its numbers are
        drawn. Numbers do not depend on how transitions are divided into calls.
        """
        width = rule.facts.n_uniforms
        if not rule.facts.parts and spread and width >= MANY:
            found = np.empty(n + width)
            found[:n].view(np.uint64)[:] = words(self.chain[c], n)
            return found
        if not rule.facts.parts:
            return uniforms(self.chain[c], n, width).ravel()
        template = self._template(rule, c, n, 1)[0]
        missing = np.isnan(template)
        template[missing] = self.chain[c].random(int(missing.sum()))
        return template

    def _template(self, rule: "Rule", c: int, n: int, place: int) -> tuple[Array, Ints]:
        """Return coins, with NaN for numbers of the chain's stream, and numbers per transition."""
        facts = rule.facts
        if not facts.parts:
            return np.full(n * facts.n_uniforms, np.nan), np.full(n, facts.n_uniforms)
        coins = self.of("coin", place)[c].random(n)
        chosen = cast("Choosing", rule).chosen(coins)
        sizes = np.empty(n, dtype=np.int64)
        inside = []
        for k, part in enumerate(facts.parts):
            # The parts of a mixture are numbered as nodes of a binary tree.
            found, size = self._template(part, c, int((chosen == k).sum()), 2 * place + k)
            sizes[chosen == k] = size + 1
            inside.append(found)
        template = np.full(int(sizes.sum()), np.nan)
        is_coin = np.zeros(template.size, dtype=np.bool_)
        is_coin[np.cumsum(sizes) - sizes] = True
        template[is_coin] = coins
        rest, owner = np.empty(template.size - n), np.repeat(chosen, sizes - 1)
        for k, found in enumerate(inside):
            rest[owner == k] = found
        template[~is_coin] = rest
        return template, sizes
