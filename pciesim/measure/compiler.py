"""Compiles ``kernels.cu`` for the GPU at hand: NVRTC as it comes with PyTorch, else ``nvcc``."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

__all__ = ["CompileError", "compile_kernels"]

SOURCE: Final = Path(__file__).with_name("kernels.cu")
_NAMES: Final = ("libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so")


class CompileError(RuntimeError):
    """Neither NVRTC nor nvcc could make the kernels; ``str`` says why."""


def compile_kernels(capability: tuple[int, int], source: Path = SOURCE) -> bytes:
    """The machine code (cubin) for a compute capability. Raises CompileError."""
    target = f"sm_{capability[0]}{capability[1]}"
    reasons: list[str] = []
    for library in _nvrtc():
        try:
            return _by_nvrtc(library, source, target)
        except CompileError as error:
            reasons.append(f"NVRTC: {error}")
    nvcc = shutil.which("nvcc") or shutil.which("nvcc", path=os.environ.get("CUDA_HOME", "/usr/local/cuda") + "/bin")
    if nvcc:
        return _by_nvcc(nvcc, source, target)
    raise CompileError("; ".join(reasons) or "neither NVRTC nor nvcc is here")


def _nvrtc() -> Iterator[ctypes.CDLL]:
    folders = [Path(entry) / "nvidia" for entry in sys.path if entry]
    bundled = sorted(path for folder in folders if folder.is_dir() for path in folder.glob("*/lib/libnvrtc.so.*"))
    toolkit = Path(os.environ.get("CUDA_HOME", "/usr/local/cuda")) / "lib64"
    for name in [*map(str, bundled), *(str(toolkit / each) for each in _NAMES), *_NAMES]:
        try:
            yield ctypes.CDLL(name)
        except OSError:
            continue


def _by_nvrtc(library: ctypes.CDLL, source: Path, target: str) -> bytes:
    program = ctypes.c_void_p()
    text = source.read_bytes()
    _nvrtc_ok(library.nvrtcCreateProgram(ctypes.byref(program), text, source.name.encode(), 0, None, None), "create")
    options = [f"--gpu-architecture={target}".encode(), b"--std=c++17"]
    code = library.nvrtcCompileProgram(program, len(options), (ctypes.c_char_p * len(options))(*options))
    size = ctypes.c_size_t()
    if code:
        library.nvrtcGetProgramLogSize(program, ctypes.byref(size))
        log = ctypes.create_string_buffer(size.value)
        library.nvrtcGetProgramLog(program, log)
        lines = log.value.decode(errors="replace").strip().splitlines()
        raise CompileError(f"error {code} for {target}: {lines[0] if lines else 'no log'}")
    _nvrtc_ok(library.nvrtcGetCUBINSize(program, ctypes.byref(size)), "size of the result")
    image = ctypes.create_string_buffer(size.value)
    _nvrtc_ok(library.nvrtcGetCUBIN(program, image), "result")
    library.nvrtcDestroyProgram(ctypes.byref(program))
    return image.raw


def _nvrtc_ok(code: int, what: str) -> None:
    if code:
        raise CompileError(f"error {code} ({what})")


def _by_nvcc(nvcc: str, source: Path, target: str) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        image = Path(folder) / "kernels.cubin"
        command = [nvcc, "-cubin", f"-arch={target}", "-std=c++17", "-o", str(image), str(source)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise CompileError(f"nvcc: {(done.stderr.strip().splitlines() or ['failed'])[0]}")
        return image.read_bytes()
