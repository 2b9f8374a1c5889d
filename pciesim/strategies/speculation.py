"""Speculative decoding with the model's own draft head: several tokens an iteration, for more passes and more bytes."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from typing import Final

from pciesim.errors import InputError
from pciesim.profile import Interval
from pciesim.scenario import Scenario
from pciesim.schedule import Speculation
from pciesim.strategies.strategy import Strategy, Switch
from pciesim.workload import Phase

__all__ = ["ALIKE", "DRAFT_CHAIN", "DRAFT_TREE", "MARGINAL_ACCEPTANCE", "tokens_an_iteration"]

MARGINAL_ACCEPTANCE: Final = (0.85, 0.67, 0.51, 0.36, 0.31)
"""How often the draft at each position is accepted, all before it too: a vLLM log of Qwen3.5-397B with five drafts.

Source: local-inference-lab/rtx6kpro models/qwen35-397b.md. Later positions fall by the ratio of the last two.
"""
_SPREAD: Final = (0.75, 1.2)  # of the accepted drafts: the log's own mean runs from 2.73 to 3.69 with five drafts, and
# with two drafts 2.78 tokens an iteration were measured where the rates give 2.52
ALIKE: Final = 0.0
"""Share of a token's experts that it has in common with the token before it: published rates fit best without any."""
_MOST: Final = 16
_CHAIN: Final = re.compile(r"(?P<drafts>\d+)(?:@(?P<tokens>\d+(?:\.\d+)?))?")
_TREE: Final = re.compile(r"(?P<drafts>\d+)x(?P<width>\d+)/(?P<verified>\d+)(?:@(?P<tokens>\d+(?:\.\d+)?))?")


def tokens_an_iteration(drafts: int, width: int = 1) -> Interval:
    """Expected tokens of an iteration: 1 + the sum of marginal rates.

    With ``width`` candidates a position, each further one is taken to hit what the better ones missed as often as the
    first one hits (an upper bound: no per-rank rates are published).
    """
    rates = list(MARGINAL_ACCEPTANCE[:drafts])
    while len(rates) < drafts:
        rates.append(rates[-1] * MARGINAL_ACCEPTANCE[-1] / MARGINAL_ACCEPTANCE[-2])
    if width > 1:
        conditional = [rate / before for rate, before in zip(rates, [1.0, *rates], strict=False)]
        wide = [1 - (1 - rate) ** width for rate in conditional]
        rates = [math.prod(wide[: place + 1]) for place in range(drafts)]
    gained = sum(rates)
    return Interval(value=1 + gained, low=1 + _SPREAD[0] * gained, high=1 + min(float(drafts), _SPREAD[1] * gained))


def _chain(scenario: Scenario, argument: str) -> Scenario:
    found = _CHAIN.fullmatch(argument)
    if not found or not 1 <= int(found["drafts"]) <= _MOST:
        raise InputError(
            f"spec=mtp:{argument}: write it like 'mtp:3' (three drafts) or 'mtp:3@2.8' (2.8 tokens an iteration)"
        )
    drafts = int(found["drafts"])
    yields = _measured(argument, found["tokens"], drafts) or tokens_an_iteration(drafts)
    return replace(scenario, speculation=Speculation(drafts=drafts, alike=ALIKE), yields=yields)


def _tree(scenario: Scenario, argument: str) -> Scenario:
    found = _TREE.fullmatch(argument)
    if not found or not 1 <= int(found["drafts"]) <= _MOST or int(found["width"]) < 2:
        raise InputError(
            f"spec=tree:{argument}: write it like 'tree:5x4/8': five steps, four candidates, eight verified"
        )
    drafts, width, verified = int(found["drafts"]), int(found["width"]), int(found["verified"])
    if verified <= drafts:
        raise InputError(f"spec=tree:{argument}: fewer rows are verified than a chain of {drafts} drafts has")
    yields = _measured(argument, found["tokens"], drafts) or tokens_an_iteration(drafts, width)
    return replace(
        scenario, speculation=Speculation(drafts=drafts, width=width, verified=verified, alike=ALIKE), yields=yields
    )


def _measured(argument: str, tokens: str | None, drafts: int) -> Interval | None:
    if tokens is None:
        return None
    if not 1 <= float(tokens) <= drafts + 1:
        raise InputError(f"spec={argument}: {drafts} drafts yield between 1 and {drafts + 1} tokens an iteration")
    return Interval.exact(float(tokens))


def _obstacle(scenario: Scenario, _argument: str) -> str:
    if scenario.workload.phase is Phase.PREFILL:
        return "drafts belong to decode"
    if scenario.model.mtp is None:
        return f"{scenario.model.name} has no draft head (MTP)"
    return ""


def _turn_on_chain(argument: str) -> tuple[Switch, ...]:
    drafts = int(argument.partition("@")[0])
    steps = ("--speculative-num-steps", str(drafts), "--speculative-eagle-topk", "1",
             "--speculative-num-draft-tokens", str(drafts + 1))  # fmt: skip
    method = f'\'{{"method": "mtp", "num_speculative_tokens": {drafts}}}\''
    return (
        Switch(engine="sglang", flags=("--speculative-algorithm", "NEXTN", *steps)),
        Switch(engine="vllm", flags=("--speculative-config", method)),
    )


def _turn_on_tree(argument: str) -> tuple[Switch, ...]:
    found = _TREE.fullmatch(argument)
    if found is None:
        return ()
    return (
        Switch(
            engine="sglang",
            flags=("--speculative-algorithm", "EAGLE", "--speculative-num-steps", found["drafts"],
                   "--speculative-eagle-topk", found["width"], "--speculative-num-draft-tokens", found["verified"]),
        ),
    )  # fmt: skip


DRAFT_CHAIN: Final = Strategy(
    axis="spec",
    name="mtp",
    argument="drafts, as in 3, or 3@2.8 with the tokens an iteration that were measured",
    sentence="a draft head (MTP, NEXTN, EAGLE with top-k 1) proposes tokens, one pass of the model checks them all",
    source="SGLang speculative/eagle_worker_v2.py; vLLM v1/spec_decode; acceptance: rtx6kpro models/qwen35-397b.md",
    apply=_chain,
    obstacle=_obstacle,
    turn_on=_turn_on_chain,
    number="all-reduces of the model once an iteration instead of once a token; 3 more and a logits gather a draft",
    size="(drafts + 1) times the rows in every verifying all-reduce",
    criticality="amortised over the accepted tokens; drafts, check and extension stay serial",
    risk="acceptance depends on model and prompts; memory for the draft head",
    note="tokens an iteration by position (0.85, 0.67, 0.51, ...) are those of Qwen3.5-397B unless given",
    hurts="large batches: verification reads more distinct experts; long contexts with engines that draft badly there",
)

DRAFT_TREE: Final = Strategy(
    axis="spec",
    name="tree",
    argument="steps x candidates / verified rows, as in 5x4/8",
    sentence="the draft head keeps several candidates a step; the best rows of the tree are checked in one pass",
    source="SGLang speculative/eagle_utils.py organize_draft_results",
    apply=_tree,
    obstacle=_obstacle,
    turn_on=_turn_on_tree,
    number=DRAFT_CHAIN.number,
    size="as many rows as are verified",
    criticality=DRAFT_CHAIN.criticality,
    risk="acceptance depends on model and prompts; memory for the draft head",
    note="tokens an iteration of a tree are an upper bound: no acceptance by rank is published",
    hurts="sooner than a chain: more rows for few more tokens",
)
