"""Keeps the PCIe links of all GPUs busy for a moment, so that they train up from their idle speed.

Run as a program (``python -m pciesim.formats.smi_load SECONDS``) it copies host memory to every GPU through the CUDA
driver library; as a context it runs that program beside something else. Without the library it does nothing.
"""

from __future__ import annotations

import contextlib
import ctypes
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Final

from pciesim.units import MIB

__all__ = ["busy_links", "copy_for"]

_BYTES: Final = 64 * MIB
_WARM_UP: Final = 3.0  # seconds: contexts of eight GPUs take about two
_LONGEST: Final = 60.0


def copy_for(seconds: float) -> int:
    """Copies to every GPU in turn until the time is over; how many GPUs took part."""
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return 0
    count = ctypes.c_int()
    if cuda.cuInit(0) or cuda.cuDeviceGetCount(ctypes.byref(count)):
        return 0
    buffers = []
    host = ctypes.create_string_buffer(_BYTES)
    for number in range(count.value):
        device, context, memory = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_uint64()
        if cuda.cuDeviceGet(ctypes.byref(device), number) or cuda.cuCtxCreate_v2(ctypes.byref(context), 0, device):
            continue
        if not cuda.cuMemAlloc_v2(ctypes.byref(memory), ctypes.c_size_t(_BYTES)):
            buffers.append((context, memory))
    end = time.monotonic() + seconds
    while buffers and time.monotonic() < end:
        for context, memory in buffers:
            cuda.cuCtxSetCurrent(context)
            cuda.cuMemcpyHtoD_v2(memory, host, ctypes.c_size_t(_BYTES))
    return len(buffers)


@contextlib.contextmanager
def busy_links() -> Iterator[None]:
    """Runs :func:`copy_for` in a process of its own while the body runs."""
    command = [sys.executable, "-m", "pciesim.formats.smi_load", str(_LONGEST)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=_WARM_UP)
        yield
    finally:
        process.terminate()
        process.wait()


if __name__ == "__main__":
    copy_for(float(sys.argv[1]))
