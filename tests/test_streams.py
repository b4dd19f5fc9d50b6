"""Random streams: where they begin, what they are for, and that none shifts another."""

import copy
import itertools
import pickle
import threading

import numpy as np
import pytest
from models import dense

from sklsb import GibbsSampler, HammingBallSampler, LSBSampler
from sklsb._kernels.rules.balanced import Balanced
from sklsb._kernels.rules.mixture import Mixture
from sklsb.balancing import Barker
from sklsb.ensembles import streams
from sklsb.ensembles.streams import PURPOSES, Streams, spawn
from sklsb.exact.matrices import rule_of

TARGET = dense(5, scale=0.3)
SINGLE = Balanced(Barker().table())
BLOCK = rule_of(GibbsSampler(block_size=3), TARGET)
BALL = rule_of(HammingBallSampler(2), TARGET)
SWEEP = rule_of(GibbsSampler("chromatic"), TARGET)
RULES = {
    "single": SINGLE,
    "block": BLOCK,
    "mixture": Mixture.of(SINGLE, BLOCK, 0.3),
    "first only": Mixture.of(SINGLE, BLOCK, 0.0),
    "second only": Mixture.of(SINGLE, BLOCK, 1.0),
    "nested first": Mixture.of(Mixture.of(SINGLE, BLOCK, 0.5), SWEEP, 0.25),
    "nested second": Mixture.of(BALL, Mixture.of(SWEEP, SINGLE, 0.5), 0.75),
    "nested both": Mixture.of(
        Mixture.of(SINGLE, BLOCK, 0.5), Mixture.of(BALL, Mixture.of(SWEEP, BLOCK, 0.4), 0.6), 0.5
    ),
}
SEED = 12345


def new(n=3, seed=SEED):
    return Streams(spawn(seed, n))


def some(rngs, n=5):
    """Next numbers of streams, which stay where they are."""
    return np.array([copy.deepcopy(rng).random(n) for rng in rngs])


# ----------------------------------------------------------------- where they begin


def children(n, spawn_key=()):
    """Streams by a key that contains a constant of the package, the letters "lsb"."""
    key = int.from_bytes(b"lsb", "big")
    sequences = [np.random.SeedSequence(SEED, spawn_key=(*spawn_key, key, c)) for c in range(n)]
    return [np.random.default_rng(sequence) for sequence in sequences]


@pytest.mark.parametrize("n", [1, 4])
def test_chains_have_children_of_the_package(n):
    np.testing.assert_array_equal(some(spawn(SEED, n)), some(children(n)))
    sequence = np.random.SeedSequence(SEED, spawn_key=(7,))
    sequence.spawn(2)
    wanted = some(children(n, spawn_key=(7,)))
    np.testing.assert_array_equal(some(spawn(sequence, n)), wanted)  # though it has spawned
    assert sequence.n_children_spawned == 2


@pytest.mark.parametrize(
    "sampler", [LSBSampler("sqrt"), GibbsSampler("random"), HammingBallSampler(2)], ids=str
)
def test_samplers_drive_their_chains_by_these(sampler):
    sampler.set_params(n_chains=3, n_burn_in=0, random_state=SEED)
    x = np.ones((3, 5), dtype=int)
    sampler.fit(TARGET, initial_states=x)
    wanted = children(3)
    np.testing.assert_array_equal(some(sampler.run_.ensemble.streams.chain), some(wanted))
    n = rule_of(sampler, TARGET).facts.n_uniforms
    sampler.sample(7, thin=2)
    for rng in wanted:
        rng.random(14 * n)
    np.testing.assert_array_equal(some(sampler.run_.ensemble.streams.chain), some(wanted))


def test_starting_states_have_streams_of_their_own():
    sampler = GibbsSampler(
        "random", n_chains=2, n_burn_in=0, init="uniform", random_state=SEED
    ).fit(TARGET)
    np.testing.assert_array_equal(some(sampler.run_.ensemble.streams.chain), some(children(2)))
    wanted = [TARGET.draw_state(rng) for rng in new(2).of("start")]
    np.testing.assert_array_equal(sampler.state_, wanted)


def test_a_random_state_is_advanced_as_in_scikit_learn():
    given, twin = np.random.RandomState(SEED), np.random.RandomState(SEED)
    first, second = some(spawn(given, 2)), some(spawn(given, 2))
    assert (first != second).all()
    words = twin.randint(2**32, size=8, dtype=np.uint32)
    assert given.randint(1000) == twin.randint(1000)
    np.testing.assert_array_equal(first, some(spawn(np.random.SeedSequence(words[:4].tolist()), 2)))


@pytest.mark.parametrize(
    ("seed", "error", "message"),
    [
        (-3, ValueError, "random_state is -3; a seed must not be negative"),
        (1.5, TypeError, r"random_state is 1\.5; give an int, None, a numpy SeedSequence or a n"),
        (True, TypeError, "random_state is True; give an int"),
        ("0", TypeError, "random_state is '0'; give an int"),
    ],
)
def test_what_is_no_seed(seed, error, message):
    with pytest.raises(error, match=message):
        spawn(seed, 2)


# ----------------------------------------------------------------- purposes


def test_a_purpose_never_shifts_another():
    quiet, busy = new(), new()
    busy.of("coin", 1)[0].random(100)
    busy.of("redraw")[2].random(3)
    for place in range(4):
        busy.of("coin", place)
    busy.of("pilot", 9)
    np.testing.assert_array_equal(some(busy.chain), some(quiet.chain))
    np.testing.assert_array_equal(some(busy.of("swap")), some(quiet.of("swap")))
    np.testing.assert_array_equal(some(busy.of("coin", 3)), some(quiet.of("coin", 3)))
    # Nor does it matter how far the chain has come when it is first needed.
    late = new()
    for rng in late.chain:
        rng.random(17)
    np.testing.assert_array_equal(some(late.of("coin", 1)), some(new().of("coin", 1)))


def test_all_streams_are_different():
    one = new(4)
    rows = [one.of(purpose, place) for purpose in PURPOSES[1:] for place in range(3)]
    numbers = np.concatenate([some(row, 3) for row in [one.chain, *rows]])
    assert len(np.unique(numbers)) == numbers.size == 4 * 3 * (1 + 3 * (len(PURPOSES) - 1))
    # And none is a child, or a grandchild, that a user spawns from the same seed.
    theirs = np.random.SeedSequence(SEED).spawn(6)
    family = [child for parent in theirs for child in parent.spawn(10)] + theirs
    theirs = some([np.random.default_rng(child) for child in family], 3)
    assert not np.isin(theirs, numbers).any()


def test_the_first_streams_do_not_depend_on_how_many_there_are():
    for purpose, place in (("coin", 2), ("scout", 0)):
        few, many = new(2).of(purpose, place), new(7).of(purpose, place)
        np.testing.assert_array_equal(some(few), some(many)[:2])


def test_unknown_purposes():
    message = r"purpose is 'coins'; it must be one of \['chain', 'start', 'coin'"
    with pytest.raises(ValueError, match=message):
        new().of("coins")


def test_copies_and_pickles_go_on():
    one = new()
    one.of("coin", 1)[0].random(5)
    copies = [one.copy(), copy.deepcopy(one), pickle.loads(pickle.dumps(one))]
    one.chain[0].random(9)
    one.of("coin", 1)[1].random(2)
    reference = new()
    reference.of("coin", 1)[0].random(5)
    for other in copies:
        for purpose, place in (("chain", 0), ("coin", 1), ("swap", 0)):  # the last of them anew
            wanted = some(reference.of(purpose, place))
            np.testing.assert_array_equal(some(other.of(purpose, place)), wanted)


def test_two_threads_that_need_a_stream_first_get_the_same(monkeypatch):
    """Else the coins of one of them would come again in the next segment."""
    both = threading.Barrier(2, timeout=5)
    made = streams._child

    def slowly(*args):
        both.wait()
        return made(*args)

    one = new(1)
    monkeypatch.setattr(streams, "_child", slowly)
    found = []
    threads = [threading.Thread(target=lambda: found.append(one.of("coin", 1))) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found[0] is found[1] is one.of("coin", 1)


# ----------------------------------------------------------------- numbers of transitions


def by_hand(rule, chain, coins, n):
    """Numbers of n transitions, one after another: a coin first, from its own stream."""

    def one(rule, place):
        if not rule.facts.parts:
            return chain.random(rule.facts.n_uniforms).tolist()
        coin = coins(place).random()
        second = coin < rule.share
        return [coin, *one(rule.second if second else rule.first, 2 * place + second)]

    return list(itertools.chain.from_iterable(one(rule, 1) for _ in range(n)))


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
def test_numbers_are_those_of_single_transitions(rule):
    one, reference = new(), new()
    for c in range(3):
        wanted = by_hand(
            rule, reference.chain[c], lambda place, c=c: reference.of("coin", place)[c], 200
        )
        np.testing.assert_array_equal(one.numbers(rule, c, 200), wanted)
    np.testing.assert_array_equal(some(one.chain), some(reference.chain))


def test_numbers_are_those_of_the_stream_in_double_precision():
    ours = new(1)
    expected = copy.deepcopy(ours.chain[0]).random(40 * SINGLE.facts.n_uniforms)
    np.testing.assert_array_equal(ours.numbers(SINGLE, 0, 40), expected)
    assert (expected * 2.0**32 % 1.0 > 0.0).all()


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
def test_any_division_into_calls(rule):
    whole = new().numbers(rule, 1, 120)
    for sizes in ((1,) * 120, (0, 120, 0), (7, 50, 0, 63), (119, 1)):
        parts = new()
        found = [parts.numbers(rule, 1, n) for n in sizes]
        np.testing.assert_array_equal(np.concatenate(found), whole)
    assert new().numbers(rule, 0, 0).size == 0


def test_a_cheap_transition_pays_for_its_own_numbers_only():
    rule = RULES["mixture"]
    one = new(1)
    coins = some(one.of("coin", 1), 1000)[0]
    n = (coins < 0.3).sum()
    assert one.numbers(rule, 0, 1000).size == 1000 + 2 * (1000 - n) + 4 * n
    np.testing.assert_array_equal(rule.chosen(coins), coins < 0.3)


def test_rules_that_take_no_numbers():
    nothing = rule_of(GibbsSampler("systematic"), dense(0))
    assert nothing.facts.n_uniforms == 0
    rule = Mixture.of(nothing, SINGLE, 0.5)
    numbers = new(1).numbers(rule, 0, 50)
    coins = some(new(1).of("coin", 1), 50)[0]
    assert numbers.size == 50 + 2 * (coins < 0.5).sum()
    assert new(1).numbers(nothing, 0, 50).size == 0


# ----------------------------------------------------------------- transitions of many numbers

WIDE = rule_of(GibbsSampler("systematic"), dense(70, scale=0.1))


def split_mix(word, n):
    """Numbers of SplitMix64, in integers of Python."""
    found = []
    for _ in range(n):
        word = (word + 0x9E3779B97F4A7C15) % 2**64
        z = (word ^ word >> 30) * 0xBF58476D1CE4E5B9 % 2**64
        z = (z ^ z >> 27) * 0x94D049BB133111EB % 2**64
        found.append(z ^ z >> 31)
    return found


def test_split_mix_by_hand_is_the_published_one():
    assert split_mix(1234567, 3) == [6457827717110365317, 3203168211198807973, 9817491932198370423]


def test_many_numbers_come_from_one_word_of_the_stream():
    one, reference = new(), new()
    for c in range(3):
        words = reference.chain[c].bit_generator.random_raw(5).tolist()
        wanted = [(z >> 11) / 2**53 for word in words for z in split_mix(word, 70)]
        np.testing.assert_array_equal(one.numbers(WIDE, c, 5), wanted)
    np.testing.assert_array_equal(some(one.chain), some(reference.chain))


def test_any_division_of_many_numbers_into_calls():
    whole = new().numbers(WIDE, 1, 40)
    parts = new()
    found = [parts.numbers(WIDE, 1, n) for n in (0, 1, 30, 9)]
    np.testing.assert_array_equal(np.concatenate(found), whole)
    assert np.unique(whole).size == whole.size == 2800
    assert new().numbers(WIDE, 0, 0).size == 0
