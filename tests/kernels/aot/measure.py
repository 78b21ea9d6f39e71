"""What a launch takes on an architecture, without a GPU: Triton's compiler and its wheel's disassembler."""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.compiler.errors import CompilationError
from triton.runtime.errors import PTXASError
from triton.runtime.jit import JITFunction

from kernels.launch import Launch

_TOOLS = Path(triton.__file__).parent / "backends" / "nvidia" / "bin"
_TYPES = {
    torch.bfloat16: "*bf16",
    torch.float16: "*fp16",
    torch.float32: "*fp32",
    torch.float64: "*fp64",
    torch.int64: "*i64",
    torch.int32: "*i32",
    torch.int16: "*i16",
    torch.uint8: "*u8",
    torch.int8: "*i8",
}
_MMA = ("HGMMA", "HMMA", "QMMA", "OMMA", "DMMA", "IMMA")


@dataclass(frozen=True)
class Limits:
    """CUDA C++ programming guide, "Technical specifications per compute capability"."""

    block_shared: int
    shared: int
    registers: int
    warps: int
    ctas: int


LIMITS = {
    90: Limits(232448, 233472, 65536, 64, 32),
    120: Limits(101376, 102400, 65536, 48, 24),
}


@dataclass(frozen=True)
class Resources:
    """`shared` bytes of a CTA, `registers` of a thread, `ctas` that a multiprocessor holds at once."""

    shared: int
    registers: int
    ctas: int
    mma: str


class Unfit(Exception):
    """A kernel that does not compile, that an architecture cannot run, or not without spilling."""


def signature(launch: Launch) -> tuple[dict[str, str], dict[str, Any], dict[tuple[int], list[Any]]]:
    """Types, constants and attributes as the JIT would make them of these arguments."""
    types: dict[str, str] = {}
    constants: dict[str, Any] = dict(launch.constants)
    attributes: dict[tuple[int], list[Any]] = {}
    for at, parameter in enumerate(launch.fn.params):
        name = parameter.name
        if name in constants:
            types[name] = "constexpr"
            continue
        value = launch.args[name]
        if isinstance(value, torch.Tensor):
            types[name] = _TYPES[value.dtype]
            aligned = value.storage_offset() * value.element_size() % 16 == 0
        elif isinstance(value, float):
            types[name], aligned = "fp32", False
        else:
            types[name] = "i32" if -(2**31) <= value < 2**31 else "i64"
            aligned = value % 16 == 0 and not parameter.do_not_specialize
            if value == 1 and not parameter.do_not_specialize:
                types[name], constants[name], aligned = "constexpr", 1, False
        if aligned:
            attributes[(at,)] = [["tt.divisibility", 16]]
    return types, constants, attributes


def digest(launch: Launch) -> str:
    """Changes when the launch would be compiled to something else."""
    types, constants, attributes = signature(launch)
    parts = [triton.__version__, sorted(_sources(launch.fn).items()), list(types.items()), str(attributes)]
    parts += [sorted((k, str(v)) for k, v in constants.items()), launch.config.warps, launch.config.stages]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]


def _sources(fn: Any) -> dict[str, str]:
    """The text of a kernel and of every device function that it calls, ours and not Triton's."""
    found = {fn.__name__: fn.src}
    for name in fn.fn.__code__.co_names:
        callee = fn.fn.__globals__.get(name)
        if isinstance(callee, JITFunction):
            found |= _sources(callee)
        elif isinstance(callee, int | float):
            found[name] = str(callee)
    return found


def measure(launch: Launch, arch: int) -> Resources:
    """Compile it. Unfit, with the reason, for one that cannot or must not run."""
    types, constants, attributes = signature(launch)
    source = ASTSource(fn=launch.fn, signature=types, constexprs=constants, attrs=attributes)
    options = {
        "num_warps": launch.config.warps,
        "num_stages": launch.config.stages,
        "enable_fp_fusion": True,
    }
    try:
        built = triton.compile(source, target=GPUTarget("cuda", arch, 32), options=options)
    except (CompilationError, PTXASError) as why:
        raise Unfit(f"does not compile: {str(why).strip().splitlines()[-1]}") from why
    registers, stack, code = _disassembled(built.asm["cubin"])
    spills = len(re.findall(r"\b(?:LDL|STL)\b", code))
    limits = LIMITS[arch]
    if built.metadata.shared > limits.block_shared:
        raise Unfit(f"{built.metadata.shared} bytes of shared memory, sm_{arch} has {limits.block_shared}")
    if spills or stack:
        raise Unfit(f"{spills} accesses to local memory, {stack} bytes of stack: it spills")
    ctas = _occupancy(limits, built.metadata.shared, registers, launch.config.warps)
    if not ctas:
        raise Unfit(f"{registers} registers by {launch.config.warps} warps: not one CTA fits")
    mma = [op for op in _MMA if re.search(rf"\b{op}\b", code)]
    return Resources(built.metadata.shared, registers, ctas, " ".join(mma))


def _disassembled(cubin: bytes) -> tuple[int, int, str]:
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        usage = _run("cuobjdump", "-res-usage", file.name)
        code = _run("nvdisasm", "-c", file.name)
    found = re.search(r"REG:(\d+) STACK:(\d+)", usage)
    if found is None:
        raise RuntimeError(f"cuobjdump says no resources: {usage}")
    return int(found[1]), int(found[2]), code


def _run(tool: str, *args: str) -> str:
    done = subprocess.run([_TOOLS / tool, *args], capture_output=True, text=True, timeout=120, check=True)
    return done.stdout + done.stderr


def _occupancy(limits: Limits, shared: int, registers: int, warps: int) -> int:
    """Registers are given by warp in units of 256; each CTA reserves 1 KiB of shared memory."""
    by_warp = -(-registers * 32 // 256) * 256
    return min(
        limits.shared // (shared + 1024),
        limits.registers // (by_warp * warps),
        limits.warps // warps,
        limits.ctas,
    )


def row(resources: Resources) -> Mapping[str, Any]:
    return asdict(resources)
