"""Measures a box: latencies, copies, collectives, kernels and decode steps, as raw rows with a manifest.

Stands alone: the standard library, PyTorch and an NVIDIA driver are enough, so the folder can be copied to any machine
and run as ``python3 -m pciesim.measure --out RUNS``. PyTorch is imported by the worker processes only. Nothing here
changes a setting of a GPU.
"""
