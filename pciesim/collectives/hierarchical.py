"""Islands first: what the link between islands carries is one tensor, the least that any algorithm can send.

m islands of k GPUs. Reduce-scatter inside each island (shards of 1/k), exchange of each shard with its counterparts in
the other islands, all-gather inside. Across go k shards, S in all, per island and direction: the cut bound for two.

Push with sentinels (FlashInfer topo_rsag8, for any m and k): three traversals. Pull behind flags (vLLM's hierarchical
two-shot, b12x's island reduce-scatter): nine; with whole tensors instead of shards (vLLM's hierarchical one-shot): six.
The leader star sends whole tensors through one GPU of each island: three traversals, but the leader's port carries
k - 1 tensors. Counterparts exchange directly with up to four islands and by recursive doubling beyond (powers of two).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from pciesim.collectives.entry import AlgorithmEntry, Cost, Needs
from pciesim.collectives.islands import equal_islands
from pciesim.collectives.program import Buffer
from pciesim.collectives.steps import Steps, Waits
from pciesim.collectives.task import Lowered, Task
from pciesim.errors import Infeasible
from pciesim.schedule import CollectiveKind

__all__ = ["LEADER", "ONESHOT_PULL", "PULL", "PUSH", "lower_leader", "lower_oneshot_pull", "lower_pull", "lower_push"]

_DIRECT: Final = 4  # islands that exchange directly

Islands = tuple[tuple[int, ...], ...]


def _islands(task: Task) -> Islands:
    found = equal_islands(task)
    if found is None:
        raise Infeasible(f"the ranks on '{task.fabric.name}' form no equal islands")
    return found


def lower_push(task: Task, *, name: str = "hierarchical") -> Lowered:
    """Reduce-scatter in the island, exchange with counterparts, all-gather in the island; all pushed."""
    islands, costs, steps = _islands(task), task.costs.push, Steps(task)
    k, shard = len(islands[0]), task.nbytes / len(islands[0])
    launched = steps.launch(costs.base)
    waits = list(launched)
    for island in islands:
        for place, source in enumerate(island):
            for other in _others(island, source):
                position = steps.store(source, other, shard, after=launched[source], share=costs.share, landing=False,
                                       moves=[(("data", island.index(other)), ("slot", place))])  # fmt: skip
                waits[other] = (*waits[other], position)
    shard_at = {rank: place for island in islands for place, rank in enumerate(island)}
    sums = [
        steps.local(rank, after=waits[rank], write=("partial", 0), duration=task.costs.phase,
                    reads=[("data", shard_at[rank]), *(("slot", j) for j in range(k) if j != shard_at[rank])])
        for rank in steps.ranks
    ]  # fmt: skip
    totals = _exchange(steps, islands, sums, shard)
    for island in islands:
        for place, source in enumerate(island):
            total: Buffer = ("total", 0)
            steps.local(source, after=(totals[source],), reads=[total], write=("data", place))
            for other in _others(island, source):
                steps.store(source, other, shard, after=(totals[source],), share=costs.share,
                            moves=[(total, ("data", place))])  # fmt: skip
    return steps.lowered(name, "sentinel", chunks=k, epochs=2, reason=_words(islands))


def _exchange(steps: Steps, islands: Islands, sums: list[int], shard: float) -> list[int]:
    """Counterparts sum their shards; returns by rank the step after which ``total`` holds all."""
    m, phase = len(islands), steps.task.costs.phase
    share = steps.task.costs.push.share if m > 2 else 1.0  # one counterpart: one stream
    columns = _columns(islands)
    if m <= _DIRECT or m & (m - 1):
        waits = {rank: [sums[rank]] for rank in steps.ranks}
        for column in columns:
            for i, source in enumerate(column):
                for other in _others(column, source):
                    position = steps.store(source, other, shard, after=(sums[source],), share=share, landing=False,
                                           moves=[(("partial", 0), ("across", i))])  # fmt: skip
                    waits[other].append(position)
        return [
            steps.local(rank, after=waits[rank], write=("total", 0), duration=phase,
                        reads=[("partial", 0), *(("across", i) for i in range(m) if rank not in islands[i])])
            for rank in steps.ranks
        ]  # fmt: skip
    done = list(sums)
    rounds = m.bit_length() - 1
    for number in range(rounds):
        held: Buffer = ("partial", number)
        got = list(done)
        for column in columns:
            for i, source in enumerate(column):
                other = column[i ^ (1 << number)]
                got[other] = steps.store(source, other, shard, after=(done[source],), landing=False,
                                         moves=[(held, ("across", number))])  # fmt: skip
        last = number == rounds - 1
        done = [
            steps.local(rank, after=(done[rank], got[rank]), reads=[held, ("across", number)], duration=phase,
                        write=("total", 0) if last else ("partial", number + 1))
            for rank in steps.ranks
        ]  # fmt: skip
    return done


def lower_pull(task: Task, *, name: str = "hierarchical-pull") -> Lowered:
    """The same three phases, each a flag barrier among the peers concerned and loads from them."""
    islands, costs, steps = _islands(task), task.costs.pull, Steps(task)
    k, m = len(islands[0]), len(islands)
    shard = task.nbytes / k
    launched = steps.launch(costs.base)
    waits = list(launched)
    for rank in steps.ranks:
        for chunk in range(k):
            stage = steps.local(rank, after=launched[rank], reads=[("data", chunk)], write=("staged", chunk))
            waits[rank] = (*waits[rank], stage)
    place_of = {rank: place for island in islands for place, rank in enumerate(island)}
    island_of = {rank: number for number, island in enumerate(islands) for rank in island}
    loads = _fetch(steps, islands, waits,
                   lambda target, other: (("staged", place_of[target]), ("slot", place_of[other])),
                   nbytes=shard, share=costs.share)  # fmt: skip
    sums = [
        steps.local(rank, after=loads[rank], write=("partial", 0), duration=task.costs.phase,
                    reads=[("staged", place_of[rank]), *(("slot", j) for j in range(k) if j != place_of[rank])])
        for rank in steps.ranks
    ]  # fmt: skip
    loads = _fetch(steps, _columns(islands), [(each,) for each in sums],
                   lambda _, other: (("partial", 0), ("across", island_of[other])),
                   nbytes=shard, share=costs.share if m > 2 else 1.0)  # fmt: skip
    totals = [
        steps.local(rank, after=loads[rank], write=("total", 0), duration=task.costs.phase,
                    reads=[("partial", 0), *(("across", i) for i in range(m) if i != island_of[rank])])
        for rank in steps.ranks
    ]  # fmt: skip
    for rank in steps.ranks:
        steps.local(rank, after=(totals[rank],), reads=[("total", 0)], write=("data", place_of[rank]))
    _fetch(steps, islands, [(each,) for each in totals],
           lambda _, other: (("total", 0), ("data", place_of[other])),
           nbytes=shard, share=costs.share)  # fmt: skip
    return steps.lowered(name, "flags", chunks=k, epochs=2, reason=_words(islands))


def lower_oneshot_pull(task: Task, *, name: str = "hierarchical-oneshot-pull") -> Lowered:
    """Whole tensors: loads from the island behind flags, then the partial sums of one's counterparts."""
    islands, costs, steps = _islands(task), task.costs.pull, Steps(task)
    m = len(islands)
    launched = steps.launch(costs.base, stage=[(("data", 0), ("staged", 0))])
    loads = _fetch(steps, islands, launched,
                   lambda _, other: (("staged", 0), ("slot", other)),
                   nbytes=task.nbytes, share=costs.share)  # fmt: skip
    island_of = {rank: number for number, island in enumerate(islands) for rank in island}
    sums = [
        steps.local(rank, after=loads[rank], write=("partial", 0), duration=task.costs.phase,
                    reads=[("staged", 0), *(("slot", other) for other in _others(islands[island_of[rank]], rank))])
        for rank in steps.ranks
    ]  # fmt: skip
    loads = _fetch(steps, _columns(islands), [(each,) for each in sums],
                   lambda _, other: (("partial", 0), ("across", island_of[other])),
                   nbytes=task.nbytes, share=costs.share if m > 2 else 1.0)  # fmt: skip
    for rank in steps.ranks:
        steps.local(rank, after=loads[rank], write=("data", 0),
                    reads=[("partial", 0), *(("across", i) for i in range(m) if i != island_of[rank])])  # fmt: skip
    return steps.lowered(name, "flags", chunks=1, epochs=2, reason=_words(islands))


def _fetch(
    steps: Steps,
    groups: Sequence[Sequence[int]],
    after: Waits,
    move: Callable[[int, int], tuple[Buffer, Buffer]],
    *,
    nbytes: float,
    share: float,
) -> Waits:
    """A flag barrier in every group, then each member's loads from the others: ``move(target, other)``."""
    ready = steps.barrier(after, groups)
    loads = list(ready)
    for group in groups:
        for target in group:
            for other in _others(group, target):
                position = steps.load(target, other, nbytes, after=ready[target], share=share,
                                      moves=[move(target, other)])  # fmt: skip
                loads[target] = (*loads[target], position)
    return loads


def _columns(islands: Islands) -> list[list[int]]:
    """Counterparts: the ranks at one place of every island."""
    return [[island[place] for island in islands] for place in range(len(islands[0]))]


def lower_leader(task: Task, *, name: str = "hierarchical-leader") -> Lowered:
    """Members push to their island's leader, leaders exchange, leaders push the result to their members."""
    islands, costs, steps = _islands(task), task.costs.push, Steps(task)
    launched = steps.launch(costs.base)
    leaders = [island[0] for island in islands]
    whole: Buffer = ("data", 0)
    sums: dict[int, int] = {}
    for island in islands:
        waits = list(launched[island[0]])
        for member in island[1:]:
            waits.append(
                steps.store(member, island[0], task.nbytes, after=launched[member], landing=False,
                            share=costs.share, moves=[(whole, ("slot", member))])
            )  # fmt: skip
        reads = [whole, *(("slot", member) for member in island[1:])]
        sums[island[0]] = steps.local(island[0], after=waits, reads=reads, write=("partial", 0),
                                      duration=task.costs.phase)  # fmt: skip
    totals: dict[int, int] = {}
    waits_of = {leader: [sums[leader]] for leader in leaders}
    for leader in leaders:
        for other in _others(leaders, leader):
            position = steps.store(leader, other, task.nbytes, after=(sums[leader],), landing=False,
                                   moves=[(("partial", 0), ("across", leader))])  # fmt: skip
            waits_of[other].append(position)
    for leader in leaders:
        reads = [("partial", 0), *(("across", other) for other in leaders if other != leader)]
        totals[leader] = steps.local(leader, after=waits_of[leader], reads=reads, write=("total", 0),
                                     duration=task.costs.phase)  # fmt: skip
        steps.local(leader, after=(totals[leader],), reads=[("total", 0)], write=whole)
    for island in islands:
        for member in island[1:]:
            steps.store(island[0], member, task.nbytes, after=(totals[island[0]],), share=costs.share,
                        moves=[(("total", 0), whole)])  # fmt: skip
    return steps.lowered(name, "sentinel", chunks=1, epochs=2, reason=_words(islands))


def _others(group: Sequence[int], rank: int) -> list[int]:
    """The others of a group, starting after the rank: staggered, so that not all begin with one target."""
    place = group.index(rank)
    return [*group[place + 1 :], *group[:place]]


def _words(islands: Islands) -> str:
    return f"{len(islands)} islands of {len(islands[0])} GPUs: " + ", ".join(
        "+".join(map(str, island)) for island in islands
    )


_ALL_REDUCE: Final = CollectiveKind.ALL_REDUCE
_NEEDS: Final = Needs(islands=True)

PUSH: Final = AlgorithmEntry(
    lower=lower_push,
    costs={
        _ALL_REDUCE: Cost(
            traversals="3 if m <= 4 or m & (m-1) else 2+log2(m)",
            messages="2*(k-1) + (m-1 if m <= 4 or m & (m-1) else log2(m))",
            nbytes="(2*(k-1) + (m-1 if m <= 4 or m & (m-1) else log2(m)))/k*S",
        )
    },
    about="reduce-scatter in the island, exchange with counterparts, all-gather in the island, all pushed",
    source="flashinfer-ai/flashinfer PR 4393 topo_rsag8, generalised to any number and size of equal islands",
    needs=_NEEDS,
)
PULL: Final = AlgorithmEntry(
    lower=lower_pull,
    costs={_ALL_REDUCE: Cost(traversals="9", messages="2*(k-1)+m-1", nbytes="(2*(k-1)+m-1)/k*S")},
    about="the same three phases by loads behind flags",
    source="vllm-project/vllm PR 50941 hier_all_reduce.py (two-shot, m = 2); b12x island_rs (k = m = 4)",
    needs=_NEEDS,
)
ONESHOT_PULL: Final = AlgorithmEntry(
    lower=lower_oneshot_pull,
    costs={_ALL_REDUCE: Cost(traversals="6", messages="k-1+m-1", nbytes="(k-1+m-1)*S")},
    about="loads whole tensors from the island, then the partial sums of the counterparts",
    source="vllm-project/vllm PR 50941 hier_all_reduce.py (one-shot)",
    needs=_NEEDS,
)
LEADER: Final = AlgorithmEntry(
    lower=lower_leader,
    costs={_ALL_REDUCE: Cost(traversals="3", messages="m-1+k-1", nbytes="(m-1+k-1)*S")},
    about="one leader an island adds for its members, exchanges with the other leaders and pushes the result back",
    source="derived; meets the cut bound for two islands, but the leader's port carries k - 1 tensors",
    needs=_NEEDS,
)
