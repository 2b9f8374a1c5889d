"""The breakdown of a step as plain values, largest first.

Run with ``python examples/where_the_time_goes.py``.
"""

from pciesim.api import predict
from pciesim.units import format_seconds


def main() -> None:
    """Print one line per part of the step."""
    prediction = predict(topo="rtx6000x4", model="qwen35_397b")
    for name, share in sorted(prediction.breakdown, key=lambda part: -part[1].value):
        print(f"{name:32}{format_seconds(share.value):>10}  ({share.value / prediction.step_latency.value:.0%})")


if __name__ == "__main__":
    main()
