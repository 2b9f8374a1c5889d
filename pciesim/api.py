"""Files and names in, a prediction out: what the command line and a notebook call."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

from pciesim.calibrate.priors import prior_profile
from pciesim.collectives.select import ALGORITHMS
from pciesim.errors import InputError, UnknownName
from pciesim.evaluate.collective import EVALUATORS
from pciesim.fabric import Assumption, Fabric, NcclEnvironment
from pciesim.formats.catalogue import gpu_names, gpu_type
from pciesim.formats.engine_yaml import load_engine
from pciesim.formats.kernel_tables import load_kernel_tables, measured_gpus
from pciesim.formats.model import load_model
from pciesim.formats.profile_yaml import read_profile
from pciesim.formats.runs_csv import read_curve
from pciesim.formats.shipped import find_input, shipped_names
from pciesim.formats.topology import load_fabric
from pciesim.hardware import GpuType
from pciesim.kernels import SPREAD, Backends, Donor, KernelLibrary, routing_of
from pciesim.model import ModelSpec, Moe
from pciesim.model_size import check_parallelism
from pciesim.physics import RouteCosts
from pciesim.placement import choose_gpus, farthest, farthest_replica
from pciesim.predict import predict as predict_scenario
from pciesim.prediction import Prediction, Request
from pciesim.profile import Profile
from pciesim.scenario import Scenario
from pciesim.schedule import EngineSpec
from pciesim.strategies.choice import apply_choices
from pciesim.units import KIB
from pciesim.workload import Parallelism, Phase, Workload

__all__ = [
    "as_prior", "box_profile", "kernel_clock", "load_profile", "load_scenario", "names_curve", "nccl_environment",
    "nearest_profile", "predict",
]  # fmt: skip

_CONTEXT: Final = KIB  # tokens in the cache where none are named
SHIPPED: Final = "shipped"
LIBRARY_KERNELS: Final = "aiconfigurator"
KERNELS: Final = (SHIPPED, LIBRARY_KERNELS)
"""Where kernel tables come from: this project's own, or the optional library."""

_DEFAULT_DONORS: Final = ("rtx_pro_6000", "h200")  # whose kernel tables other GPUs borrow, in this order


_UNKNOWN_GPU: Final = Assumption(
    text="the GPUs are RTX PRO 6000: the topology does not name them",
    settle="nvidia-smi -L; write 'gpu: <model>' into the overlay",
    matters="every kernel time, memory, NCCL's choices",
)


def predict(
    *,
    topo: str,
    model: str,
    tp: int | None = None,
    batch: int = 1,
    context: int | None = None,
    gpus: tuple[int, ...] | None = None,
    engine: str = "sglang",
    allreduce: str = "auto",
    profile: str | None = None,
    evaluator: str = "simulate",
    overlay: Path | None = None,
    nccl: Mapping[str, str] | None = None,
    phase: str = "decode",
    prompt: int | None = None,
    chunk: int | None = None,
    ep: int = 1,
    dp: int = 1,
    pp: int = 1,
    attention_dp: int = 1,
    options: Mapping[str, str] | None = None,
    layers: bool = False,
    kernels: str = SHIPPED,
    skew: float = SPREAD[1],
    strategies: Mapping[str, str] | None = None,
    hypothetical: bool = False,
) -> Prediction:
    """Predicts one decode step, or with ``phase="prefill"`` the time to the first token of a prompt.

    ``topo``, ``model`` and ``profile`` are paths or names of shipped files; ``tp`` None is all GPUs (of ``gpus``, or
    of the file) over ``dp`` replicas of ``pp`` stages. ``prompt`` tokens are read in chunks of ``chunk`` (None: the
    engine's default). ``allreduce`` is ``auto``, an algorithm, or a CSV of sizes and latencies of an all-reduce of
    one's own. ``context`` tokens are cached already (None: 1024, and none before a prompt). ``options`` are
    flags and variables of the engine. Raises InputError for anything that cannot be read or does not make sense,
    Infeasible when the answer is no. ``layers`` adds every op of the schedule to the answer. ``kernels`` are the kernel
    tables: ``shipped``, or ``aiconfigurator``, the optional library's own of this GPU. ``skew`` is the spread
    of the routed experts' popularity (0: all alike). ``strategies`` are axes and values as ``compare`` knows
    them (``{"spec": "mtp:3"}``); ``hypothetical`` applies those that cannot run here, too.
    """
    loaded, choice = load_scenario(
        topo=topo, model=model, tp=tp, batch=batch, context=context or 0, gpus=gpus, engine=engine,
        allreduce=allreduce, profile=profile, overlay=overlay, nccl=nccl,
        work=replace(_workload(phase, batch, context, prompt, chunk), skew=skew),
        ep=ep, dp=dp, pp=pp, attention_dp=attention_dp, options=options, kernels=kernels,
    )  # fmt: skip
    if evaluator not in EVALUATORS:
        raise UnknownName("evaluator", evaluator, EVALUATORS)
    changes = strategies or {}
    applied = apply_choices(loaded, changes.items(), hypothetical=hypothetical)
    scenario, parallelism = applied.scenario, applied.scenario.parallelism
    request = Request(
        topology=scenario.fabric.name,
        model=scenario.model.name,
        gpu_model=scenario.gpu.name,
        gpus=tuple(scenario.fabric.device(name).index or 0 for name in scenario.gpus),
        tp=parallelism.tp,
        batch=scenario.workload.batch,
        context=scenario.workload.context,
        engine=f"{scenario.engine.title} {scenario.engine.version}",
        allreduce=changes.get("allreduce", allreduce),
        profile=scenario.profile.name,
        evaluator=evaluator,
        choice=choice,
        phase=phase,
        prompt=scenario.workload.new_tokens if phase == Phase.PREFILL else 0,
        chunk=(scenario.workload.chunk or scenario.engine.prefill_chunk) if phase == Phase.PREFILL else 0,
        ep=parallelism.ep,
        dp=parallelism.dp,
        pp=parallelism.pp,
        attention_dp=parallelism.attention_dp,
        strategies=tuple(f"{axis}={value}" for axis, value in changes.items()),
    )
    return predict_scenario(scenario, request, layers=layers, notes=applied.notes)


def load_scenario(
    *,
    topo: str,
    model: str,
    tp: int | None,
    batch: int,
    context: int,
    gpus: tuple[int, ...] | None,
    engine: str,
    allreduce: str,
    profile: str | None,
    overlay: Path | None,
    nccl: Mapping[str, str] | None,
    parameters: Profile | None = None,
    work: Workload | None = None,
    ep: int = 1,
    dp: int = 1,
    pp: int = 1,
    attention_dp: int = 1,
    options: Mapping[str, str] | None = None,
    kernels: str = SHIPPED,
) -> tuple[Scenario, str]:
    """The scenario of a question, and how its GPUs were chosen, in words.

    ``parameters`` is a profile that is not a file (yet); it wins over ``profile``. ``work`` wins over ``batch`` and
    ``context``. Of several replicas the scenario is that of the one whose GPUs are farthest apart.
    """
    fabric = load_fabric(find_input("topologies", topo), overlay)
    if nccl:
        fabric = replace(fabric, nccl=nccl_environment(fabric.nccl, nccl))
    spec = load_model(find_input("models", model))
    engine_spec = load_engine(engine).with_options(options or {})
    own = read_curve(Path(allreduce)) if names_curve(allreduce) else None
    if own is None and allreduce != "auto" and allreduce not in ALGORITHMS:
        raise UnknownName("all-reduce algorithm", allreduce, ["auto", *ALGORITHMS])
    if not fabric.gpu_model:
        fabric = replace(fabric, gpu_model=_DEFAULT_DONORS[0], assumptions=(*fabric.assumptions, _UNKNOWN_GPU))
    gpu = gpu_type(fabric.gpu_model)
    parameters = parameters or box_profile(fabric, profile)
    names, choice = _group(fabric, tp, gpus, parameters, pp=pp, dp=dp)
    parallelism = Parallelism(tp=len(names) // pp, ep=ep, dp=dp, pp=pp, attention_dp=attention_dp)
    _check_split(spec, parallelism)
    scenario = Scenario(
        fabric=fabric,
        gpus=names,
        gpu=gpu,
        model=spec,
        workload=work or Workload(batch=batch, context=context),
        parallelism=parallelism,
        engine=engine_spec,
        profile=parameters,
        clock=kernel_clock(gpu, engine_spec, spec, kernels, skew=work.skew if work else SPREAD[1]),
        allreduce=own.title if own else allreduce,
        own=own,
    )
    return scenario, choice


def names_curve(allreduce: str) -> bool:
    """Whether an all-reduce is given as the file of a measured curve instead of a name."""
    return allreduce not in ALGORITHMS and (allreduce.endswith(".csv") or Path(allreduce).is_file())


def load_profile(name: str | None, gpu: GpuType) -> Profile:
    """The named profile, else the shipped one of this GPU type, else that of the nearest kin that has one.

    Nearest: by PCIe generation, then by whether its driver grants peer-to-peer, then by compute capability.
    """
    if name is not None:
        return read_profile(find_input("profiles", name))
    kin = [gpu_type(key) for key in shipped_names("profiles") if key in gpu_names()]
    nearest = min(
        kin,
        key=lambda other: (
            not gpu.key.startswith(other.key),  # editions of one chip share a profile
            abs(other.pcie_generation - gpu.pcie_generation),
            other.pcie_p2p != gpu.pcie_p2p,
            abs(other.compute_capability - gpu.compute_capability),
        ),
    )
    return read_profile(find_input("profiles", nearest.key))


def box_profile(fabric: Fabric, name: str | None = None) -> Profile:
    """The profile that describes a box: the one named, else the one its overlay names.

    A box that has neither was measured by nobody: the figures are of its GPU's profile, or of the nearest kin's, with
    intervals as known hosts differ.
    """
    nearest = nearest_profile(fabric, name)
    measured = name or fabric.profile
    return nearest if measured else as_prior(fabric, nearest, name=f"{nearest.name} (no measurements of this box)")


def nearest_profile(fabric: Fabric, name: str | None = None) -> Profile:
    """As :func:`box_profile`, but the nearest box's profile as it is where nobody has measured this one."""
    return load_profile(name or fabric.profile or None, gpu_type(fabric.gpu_model or _DEFAULT_DONORS[0]))


def as_prior(fabric: Fabric, nearest: Profile, *, name: str) -> Profile:
    """The nearest box's profile for one that nobody has measured."""
    gpu = gpu_type(fabric.gpu_model or _DEFAULT_DONORS[0])
    return prior_profile(nearest, name=name, same_gpu=gpu.key.startswith(nearest.gpu))


def kernel_clock(
    gpu: GpuType, engine: EngineSpec, model: ModelSpec, kernels: str = SHIPPED, *, skew: float = SPREAD[1]
) -> KernelLibrary:
    """Kernel times of a GPU under an engine: its own tables first, then those it may borrow.

    ``kernels`` ``aiconfigurator``: the GPU's own are the optional library's. Raises InputError where it has none.
    """
    if kernels not in KERNELS:
        raise UnknownName("kernel tables", kernels, KERNELS)
    measured = measured_gpus()
    keys = [key for key in measured if gpu.key.startswith(key)]
    keys += [key for key in _DEFAULT_DONORS if key in measured and key not in keys]
    donors = [Donor(gpu=gpu_type(key), tables=load_kernel_tables(key)) for key in keys]
    if kernels == LIBRARY_KERNELS:
        from pciesim.formats.aiconfigurator import library_tables  # noqa: PLC0415  (only who asks needs it)

        donors.insert(0, Donor(gpu=gpu, tables=library_tables(gpu.key)[0]))
    precision = next((layer.mlp.precision for layer in model.layers if isinstance(layer.mlp, Moe)), None)
    backends = Backends(
        engine=engine.kernel_rows,
        experts=engine.expert_backends.get(str(precision), "flashinfer_cutlass"),
        attention=engine.attention_backend,
        routing=routing_of(skew),
    )
    return KernelLibrary(gpu=gpu, donors=donors, backends=backends)


def _workload(phase: str, batch: int, context: int | None, prompt: int | None, chunk: int | None) -> Workload:
    """The workload of a phase. Raises UnknownName or InputError for what does not go together."""
    if phase not in list(Phase):
        raise UnknownName("phase", phase, list(Phase))
    if phase == Phase.DECODE:
        if prompt is not None or chunk is not None:
            raise InputError("--prompt and --chunk belong to --phase prefill; decode has a --context")
        return Workload(batch=batch, context=_CONTEXT if context is None else context)
    if prompt is None:
        raise InputError("--phase prefill needs --prompt, the tokens of the prompt")
    return Workload(phase=Phase.PREFILL, batch=batch, context=context or 0, new_tokens=prompt, chunk=chunk or 0)


def _check_split(model: ModelSpec, parallelism: Parallelism) -> None:
    """Raises InputError when the model cannot be split so."""
    tp, attention = parallelism.tp, parallelism.attention_dp
    if tp % attention:
        raise InputError(f"attention data parallelism {attention} does not divide tensor parallelism {tp}")
    if parallelism.pp > len(model.layers):
        raise InputError(f"{parallelism.pp} pipeline stages are more than the {len(model.layers)} layers")
    check_parallelism(model, tp=tp, ep=parallelism.ep)


def _group(
    fabric: Fabric, tp: int | None, gpus: tuple[int, ...] | None, profile: Profile, *, pp: int = 1, dp: int = 1
) -> tuple[tuple[str, ...], str]:
    """The GPUs of one replica, in rank order, and how they were chosen."""
    by_index = {gpu.index: gpu.name for gpu in fabric.gpus if gpu.index is not None}
    split = f"--pp {pp}, --dp {dp}"
    if gpus is None:
        if tp is None and len(by_index) % (pp * dp):
            raise InputError(f"the {len(by_index)} GPUs of '{fabric.name}' do not divide over {split}; name --tp")
        width = tp * pp if tp else len(by_index) // dp
        if width * dp > len(by_index):
            raise InputError(f"--tp {width // pp}, {split} need {width * dp} GPUs, '{fabric.name}' has {len(by_index)}")
        costs = RouteCosts.of(profile)
        names, choice = choose_gpus(fabric, width, costs)
        return (names, choice) if dp == 1 else farthest_replica(fabric, names, dp, costs)
    for index in gpus:
        if index not in by_index:
            raise InputError(f"--gpus names GPU {index}; '{fabric.name}' has GPUs 0 to {max(by_index)}")
    if (tp is not None and tp * pp * dp != len(gpus)) or len(gpus) % (pp * dp):
        asked = f"--tp {tp}" if tp is not None else "the split"
        asked += f", {split}" if pp * dp > 1 else ""
        raise InputError(f"{asked} does not fit --gpus, which names {len(gpus)} GPUs")
    names = tuple(by_index[index] for index in gpus)
    if dp == 1:
        return names, "the GPUs asked for"
    width = len(names) // dp
    groups = [names[first : first + width] for first in range(0, len(names), width)]
    return farthest(fabric, groups, RouteCosts.of(profile)), "the replica whose GPUs are farthest apart"


_NCCL_KEYS: Final = (
    "NCCL_ALGO", "NCCL_GRAPH_FILE", "NCCL_MAX_NCHANNELS", "NCCL_MIN_NCHANNELS", "NCCL_P2P_DISABLE", "NCCL_P2P_LEVEL",
    "NCCL_PROTO",
)  # fmt: skip
_LEVELS: Final = ("LOC", "NVL", "PIX", "PXB", "PHB", "NODE", "SYS")


def nccl_environment(base: NcclEnvironment, variables: Mapping[str, str]) -> NcclEnvironment:
    """NCCL variables over what the overlay says. Raises InputError for a variable or value pciesim does not model."""
    changed = base
    for key, value in variables.items():
        if key == "NCCL_P2P_LEVEL":
            _one_of(key, value, _LEVELS)
            changed = replace(changed, p2p_level=value, p2p=value != "LOC" and changed.p2p)
        elif key == "NCCL_P2P_DISABLE":
            _one_of(key, value, ("0", "1"))
            changed = replace(changed, p2p=value == "0")
        elif key == "NCCL_ALGO":
            _one_of(key, value, ("Ring", "Tree"))
            changed = replace(changed, algorithm=value)
        elif key == "NCCL_PROTO":
            _one_of(key, value, ("LL", "LL128", "Simple"))
            changed = replace(changed, protocol=value)
        elif key in ("NCCL_MIN_NCHANNELS", "NCCL_MAX_NCHANNELS"):
            if not value.isdecimal() or not 1 <= int(value) <= 64:
                raise InputError(f"{key}={value}: expected a number of channels from 1 to 64")
            if key == "NCCL_MIN_NCHANNELS":
                changed = replace(changed, min_channels=int(value))
            else:
                changed = replace(changed, max_channels=int(value))
        elif key == "NCCL_GRAPH_FILE":
            changed = replace(changed, graph_file=value not in ("", "0"))
        else:
            raise UnknownName("NCCL variable", key, _NCCL_KEYS)
    return changed


def _one_of(key: str, value: str, valid: tuple[str, ...]) -> None:
    if value not in valid:
        raise UnknownName(f"value of {key}", value, valid)
