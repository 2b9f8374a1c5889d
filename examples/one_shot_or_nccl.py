"""What would a one-shot all-reduce be worth on this box, for one user and for many?

Run with ``python examples/one_shot_or_nccl.py``.
"""

from pciesim.api import predict


def main() -> None:
    """Print one line per batch size."""
    print("batch   NCCL tok/s   one-shot tok/s   (whole box)")
    for batch in (1, 8, 64):
        nccl = predict(topo="rtx6000x8", model="qwen35_397b", batch=batch, allreduce="nccl")
        oneshot = predict(topo="rtx6000x8", model="qwen35_397b", batch=batch, allreduce="oneshot-pull")
        speeds = (nccl.tokens_per_second_total.value, oneshot.tokens_per_second_total.value)
        print(f"{batch:5d}   {speeds[0]:10.0f}   {speeds[1]:14.0f}")


if __name__ == "__main__":
    main()
