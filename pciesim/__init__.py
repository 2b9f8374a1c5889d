"""Predict tensor- and expert-parallel LLM latency on GPUs joined by PCIe."""

__all__ = ["__version__"]

__version__ = "0.1.0"
