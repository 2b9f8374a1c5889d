"""What would another all-reduce, more drafts or half the ranks change, and is that certain?"""

from pciesim.whatif import compare

for comparison in compare(
    topo="rtx6000x8",
    model="qwen35_397b",
    vary={"allreduce": ["nccl", "oneshot-push"], "spec": ["none", "mtp:2"], "tp": ["8", "4"]},
    batches=(1, 32),
    evaluator="estimate",
):
    print(comparison.title)
    for gain in comparison.gains:
        name = comparison.named(gain.outcome.configuration)
        speed = gain.speed_up
        print(f"  {name:48} x{speed.value:.2f} ({speed.low:.2f} to {speed.high:.2f})  {gain.sign}")
