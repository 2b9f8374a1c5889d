"""The few calls of the CUDA driver that PyTorch does not offer: own kernels, memory shared between processes.

Used beside PyTorch in its primary context: streams and graphs are PyTorch's, addresses are plain integers.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any, Final

__all__ = ["Driver", "DriverError", "Kernel", "u32", "u64"]

_LAZY_PEER_ACCESS: Final = 1  # CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS
_PORTABLE_AND_MAPPED: Final = 3  # CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP

u32 = ctypes.c_uint32
u64 = ctypes.c_uint64


class DriverError(RuntimeError):
    """A driver call failed; says which, with the driver's own words."""


class _IpcHandle(ctypes.Structure):
    _fields_ = (("reserved", ctypes.c_char * 64),)


class Kernel:
    """A function of a loaded module."""

    __slots__ = ("_driver", "_function")

    def __init__(self, driver: Driver, function: ctypes.c_void_p) -> None:
        self._driver, self._function = driver, function

    def launch(self, blocks: int, threads: int, stream: int, arguments: Sequence[Any]) -> None:
        """Puts the kernel on a stream. ``arguments`` are ctypes values (addresses as ``u64``)."""
        pointers = (ctypes.c_void_p * max(1, len(arguments)))(
            *(ctypes.cast(ctypes.pointer(each), ctypes.c_void_p) for each in arguments)
        )
        self._driver.call("cuLaunchKernel", self._function, blocks, 1, 1, threads, 1, 1, 0, ctypes.c_void_p(stream),
                          pointers, None)  # fmt: skip


class Driver:
    """libcuda, after PyTorch has made its context current."""

    __slots__ = ("_library",)

    def __init__(self) -> None:
        self._library = ctypes.CDLL("libcuda.so.1")

    def call(self, name: str, *arguments: Any) -> None:
        """Calls a driver function. Raises DriverError unless it says success."""
        code = getattr(self._library, name)(*arguments)
        if code:
            text = ctypes.c_char_p()
            self._library.cuGetErrorString(code, ctypes.byref(text))
            raise DriverError(f"{name}: {(text.value or b'unknown error').decode()} ({code})")

    def load(self, image: bytes, names: Sequence[str]) -> dict[str, Kernel]:
        """The named kernels of a cubin."""
        module = ctypes.c_void_p()
        self.call("cuModuleLoadData", ctypes.byref(module), image)
        kernels: dict[str, Kernel] = {}
        for name in names:
            function = ctypes.c_void_p()
            self.call("cuModuleGetFunction", ctypes.byref(function), module, name.encode())
            kernels[name] = Kernel(self, function)
        return kernels

    def allocate(self, nbytes: int) -> int:
        """Device memory of its own allocation, as sharing between processes wants it."""
        address = u64()
        self.call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(nbytes))
        return address.value

    def free(self, address: int) -> None:
        """Gives back what ``allocate`` gave."""
        self.call("cuMemFree_v2", u64(address))

    def export(self, address: int) -> bytes:
        """A handle by which another process can open an allocation."""
        handle = _IpcHandle()
        self.call("cuIpcGetMemHandle", ctypes.byref(handle), u64(address))
        return bytes(handle)

    def open(self, handle: bytes) -> int:
        """The address, here, of another process's allocation; peer access is switched on as needed."""
        address = u64()
        self.call("cuIpcOpenMemHandle_v2", ctypes.byref(address), _IpcHandle.from_buffer_copy(handle),
                  ctypes.c_uint(_LAZY_PEER_ACCESS))  # fmt: skip
        return address.value

    def close(self, address: int) -> None:
        """Ends the use of what ``open`` gave."""
        self.call("cuIpcCloseMemHandle", u64(address))

    def register_host(self, address: int, nbytes: int) -> int:
        """Pins host memory and maps it; the address by which the GPU reaches it."""
        self.call("cuMemHostRegister_v2", ctypes.c_void_p(address), ctypes.c_size_t(nbytes),
                  ctypes.c_uint(_PORTABLE_AND_MAPPED))  # fmt: skip
        device = u64()
        self.call("cuMemHostGetDevicePointer_v2", ctypes.byref(device), ctypes.c_void_p(address), ctypes.c_uint(0))
        return device.value

    def unregister_host(self, address: int) -> None:
        """Unpins what ``register_host`` pinned."""
        self.call("cuMemHostUnregister", ctypes.c_void_p(address))

    def copy(self, target: int, source: int, nbytes: int, stream: int) -> None:
        """A copy-engine copy between any two addresses, issued by the GPU that the stream belongs to."""
        self.call("cuMemcpyAsync", u64(target), u64(source), ctypes.c_size_t(nbytes), ctypes.c_void_p(stream))

    def fill(self, address: int, word: int, words: int, stream: int) -> None:
        """Sets 32-bit words."""
        self.call("cuMemsetD32Async", u64(address), u32(word), ctypes.c_size_t(words), ctypes.c_void_p(stream))

    def peer_access(self, device: int, peer: int) -> bool:
        """Whether a GPU says that it can reach a peer's memory."""
        able = ctypes.c_int()
        self.call("cuDeviceCanAccessPeer", ctypes.byref(able), ctypes.c_int(device), ctypes.c_int(peer))
        return bool(able.value)

    def bus_id(self, device: int) -> str:
        """PCI address of a GPU, as Linux writes it."""
        text = ctypes.create_string_buffer(32)
        self.call("cuDeviceGetPCIBusId", text, 32, ctypes.c_int(device))
        return text.value.decode().lower()
