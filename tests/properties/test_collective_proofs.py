"""The proof catches what it should: programs that are wrong in one place."""

from dataclasses import replace

import pytest

from pciesim.collectives import oneshot, permutation
from pciesim.collectives.program import Local, Transfer
from pciesim.collectives.proof import ProofError, prove
from pciesim.collectives.select import lower
from pciesim.schedule import CollectiveKind
from tests.support.tasks import fabric_named, task

ALL_REDUCE = CollectiveKind.ALL_REDUCE
FOUR = "four on one socket"


def program(name, kind=ALL_REDUCE):
    return lower(name, task(fabric_named(FOUR), 8192, kind=kind)).program


def changed(original, position, **changes):
    steps = list(original.steps)
    steps[position] = replace(steps[position], **changes)
    return replace(original, steps=tuple(steps))


@pytest.mark.parametrize(
    "name",
    ["oneshot-push", "oneshot-pull", "recursive-doubling", "oneshot-host", "mscclpp-allpairs"],
)
def test_one_set_of_buffers_is_not_enough(name):
    # A peer that is a call ahead would write (or restage) what this rank still reads.
    original = program(name)
    prove(original, ALL_REDUCE)
    with pytest.raises(ProofError, match="no fixed order"):
        prove(replace(original, epochs=1), ALL_REDUCE)


@pytest.mark.parametrize("name", ["twoshot-push", "twoshot-pull", "vllm-2stage", "halving-doubling", "nccl-ring-ll"])
def test_two_phases_guard_each_other(name):
    # Who begins the next call has this rank's second message, sent after it had read everything of the first.
    prove(replace(program(name), epochs=1), ALL_REDUCE)


def test_who_hears_nothing_needs_three_sets():
    original = program("oneshot-push", CollectiveKind.BROADCAST)
    with pytest.raises(ProofError, match="no fixed order"):
        prove(replace(original, epochs=2), CollectiveKind.BROADCAST, calls=3)


def test_a_closing_barrier_replaces_the_second_buffer():
    original = program("vllm-1stage")
    assert original.epochs == 1
    prove(original, ALL_REDUCE)
    # Without waiting for the closing flags a rank overwrites its input while peers still load it.
    last = [place for place, step in enumerate(original.steps) if isinstance(step, Local)][-1]
    waits = original.steps[last].after
    flags = {place for place in waits if isinstance(step := original.steps[place], Transfer) and not step.pull}
    closing = {place for place in flags if original.steps[place].after != (original.steps[place].source,)}
    stripped = changed(original, last, after=tuple(place for place in waits if place not in closing))
    with pytest.raises(ProofError):
        prove(stripped, ALL_REDUCE)


def test_a_missing_arrival():
    original = program("oneshot-push")
    last = len(original.steps) - 1
    with pytest.raises(ProofError):
        prove(changed(original, last, after=original.steps[last].after[:-1]), ALL_REDUCE)


def test_a_contribution_counted_twice():
    original = program("oneshot-push")
    last = len(original.steps) - 1
    twice = (*original.steps[last].reads, ("slot", 0))
    with pytest.raises(ProofError, match="twice"):
        prove(changed(original, last, reads=twice), ALL_REDUCE)


def test_a_contribution_lost():
    original = program("oneshot-push")
    last = len(original.steps) - 1
    with pytest.raises(ProofError, match="without"):
        prove(changed(original, last, reads=original.steps[last].reads[:-1]), ALL_REDUCE)


def test_a_wait_for_what_only_another_rank_sees():
    original = program("oneshot-push")
    first = next(place for place, step in enumerate(original.steps) if isinstance(step, Transfer))
    steps = original.steps
    other = next(
        place for place in range(first + 1, len(steps))
        if isinstance(steps[place], Transfer) and steps[place].source != steps[first].target
    )  # fmt: skip
    with pytest.raises(ProofError, match="can see"):
        prove(changed(original, other, after=(*steps[other].after, first)), ALL_REDUCE)


def test_a_ring_that_does_not_wait_for_its_neighbour():
    original = program("nccl-ring-ll")
    place = len(original.steps) - 1
    launch = original.steps[place].after[0]
    with pytest.raises(ProofError):
        prove(changed(original, place, after=(launch,)), ALL_REDUCE)


def test_a_fifo_of_one_slot_is_enough_but_none_is_a_race():
    # The root of a broadcast hears of nobody: only the credits of the slots hold it back.
    original = program("nccl", CollectiveKind.BROADCAST)
    single = [replace(step, credits=1) if isinstance(step, Transfer) else step for step in original.steps]
    prove(replace(original, steps=tuple(single)), CollectiveKind.BROADCAST)
    unguarded = [replace(step, credits=0) if isinstance(step, Transfer) else step for step in original.steps]
    with pytest.raises(ProofError, match="no fixed order"):
        prove(replace(original, steps=tuple(unguarded)), CollectiveKind.BROADCAST)


def test_programs_cannot_wait_for_later_steps():
    original = program("oneshot-push")
    with pytest.raises(ValueError, match="later step"):
        changed(original, 0, after=(3,))


def test_rounds_pair_every_two_ranks_once():
    for n in (2, 3, 4, 6, 8):
        for rank in range(n):
            assert sorted(permutation.peer_in_round(rank, number, n) for number in range(1, n)) == [
                other for other in range(n) if other != rank
            ]


def test_parcels_owe_every_pair_once():
    for kind in CollectiveKind:
        _, owed = oneshot.parcels(task(fabric_named(FOUR), 4096, kind=kind))
        pairs = [(source, target) for source, target, *_ in owed]
        assert len(set(pairs)) == len(pairs)
