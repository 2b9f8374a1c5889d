"""Split measured kernel tables into the small files that one prediction reads.

Run from the checkout:

    python calibration/kernels/split_tables.py rtx_pro_6000 FOLDER   # FOLDER: gemm_sglang.csv.gz, moe.csv.gz, ...
    python calibration/kernels/split_tables.py h200                  # from calibration/runs/h200x2_2026-11-30b

Every output is a gzip-compressed CSV with the key columns first and then one column per point of the axis along which
prediction interpolates, ``us@m=16`` being the latency in microseconds at m = 16; an empty cell was not measured. The
same input gives the same bytes. A manifest with the hash of every file is written beside them.
"""

from __future__ import annotations

import csv
import gzip
import hashlib
import io
import json
import math
import statistics
import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

HERE = Path(__file__).resolve().parent
H200_RUN = HERE.parent / "runs" / "h200x2_2026-11-30b"
H200_EARLIER = HERE.parent / "runs" / "h200x2_2026-11-30"
MICROSECONDS = 1e6

Row = Mapping[str, str]
Cells = Mapping[tuple[str, ...], Mapping[int, float]]

PRECISIONS = {
    "bfloat16": "bf16", "fp8": "fp8", "nvfp4": "nvfp4", "fp8_block": "fp8_block", "int4_wo": "int4",
    "w4a16_mxfp4": "mxfp4",
}  # fmt: skip

EXPERT_BACKENDS = {
    "sglang_flashinfer_cutlass_moe": "sglang__flashinfer_cutlass",
    "sglang_fused_moe_triton": "sglang__triton",
    "sglang_marlin_moe": "sglang__marlin",
    "sglang_marlin_moe_situ_as_silu": "sglang__marlin",
    "moe_torch_flow_cutlass": "trtllm__cutlass",
    "moe_torch_flow_nongated": "trtllm__cutlass_nongated",
    "moe_torch_flow_triton_fp8_block": "trtllm__triton",
    "vllm_compressedtensorsw4a4nvfp4moe_flashinfer_cutlass_flashinferexperts": "vllm__flashinfer_cutlass",
    "vllm_modeloptfp8moe_flashinfer_cutlass_flashinferexperts": "vllm__flashinfer_cutlass",
    "vllm_compressedtensorswna16marlinmoe_marlin_marlinexperts": "vllm__marlin",
    "vllm_gptossmxfp4moe_marlin_marlinexperts": "vllm__marlin",
}

EXPERT_COLUMNS = ("hidden", "intermediate", "top_k", "experts", "tp", "ep", "distribution")

# PyTorch operators of the measuring tool by the kind that an engine file names.
SMALL_KERNELS = {
    "rms_norm": "rmsnorm", "add": "add", "copy": "copy", "silu_mul": "silu_mul", "softmax": "softmax",
    "topk": "torch_topk", "argsort": "argsort", "searchsorted": "searchsorted", "gather": "gather",
    "index_add": "index_add",
}  # fmt: skip

DELTA_RULE_KERNELS = {
    "causal_conv1d_update": "conv_decode",
    "fused_recurrent_gated_delta_rule_packed_decode": "recurrent_decode",
    "causal_conv1d_fn": "conv_prefill",
    "chunk_gated_delta_rule": "chunk_prefill",
}


def main(arguments: Sequence[str]) -> None:
    """Regenerate the folder of one GPU."""
    if len(arguments) == 2 and arguments[0] == "rtx_pro_6000":
        split_rtx_pro_6000(Path(arguments[1]), HERE / "rtx_pro_6000")
    elif list(arguments) == ["h200"]:
        split_h200(H200_RUN, HERE / "h200")
    else:
        sys.exit(__doc__)


def split_rtx_pro_6000(source: Path, target: Path) -> None:
    """The tables of aiconfigurator-core 0.12.0 for RTX PRO 6000 Blackwell Server Edition."""
    tables: dict[str, tuple[tuple[str, ...], str, Cells]] = {}
    tables |= gemm(_rows(source / "gemm_sglang.csv.gz"))
    tables |= experts(_rows(source / "moe.csv.gz"))
    tables |= attention(_rows(source / "attention_gen_sglang.csv.gz"))
    delta_rows = _rows(source / "gdn_sglang.csv.gz")
    tables |= delta_rule(delta_rows)
    median, p90 = repeatability(delta_rows)
    inputs = ("gemm_sglang.csv.gz", "moe.csv.gz", "attention_gen_sglang.csv.gz", "gdn_sglang.csv.gz")
    header = (
        "gpu: rtx_pro_6000\n"
        "hardware: NVIDIA RTX PRO 6000 Blackwell Server Edition\n"
        "source: aiconfigurator-core 0.12.0 (ai-dynamo/aiconfigurator), NVIDIA CORPORATION & AFFILIATES\n"
        "licence: Apache-2.0\n"
        "date: 2026-11-30\n"
        "versions: SGLang 0.5.14 (gemm, attention, delta rule, moe/sglang), vLLM 0.24.0 (moe/vllm), TensorRT-LLM"
        " 1.3.0rc20 (moe/trtllm)\n"
        "split: >\n"
        "  split_tables.py rtx_pro_6000. One file per precision (gemm), per engine, backend and precision (moe), per\n"
        "  backend, KV precision, head dimension and window (attention), per kernel (delta rule). Attention: the\n"
        "  column context is the published step + 1. Delta rule: rows of models with equal heads are the same kernel;\n"
        "  the median is kept. Left out: moe rows of SGLang and vLLM for hidden 7168, width 2048, 8 of 256 experts\n"
        "  without expert parallelism, which read all expert weights at 2.1 to 2.9 TB/s, above the 1.79 TB/s of the\n"
        "  memory (the rows with expert parallelism and TensorRT-LLM's rows of the same shape do not).\n"
        "repeatability: >\n"
        f"  Equal delta rule kernels measured for several models differ by {median:.1%} (median) and {p90:.1%} (90th\n"
        "  percentile) from largest to smallest.\n"
    )
    _write(target, tables, header, {name: _sha256(source / name) for name in inputs})


def split_h200(source: Path, target: Path, earlier: Path = H200_EARLIER) -> None:
    """The project's own single-GPU kernels on one H200 (``kernels.jsonl`` of a run of ``pciesim measure``).

    ``earlier`` is another day's run: it says how well the rows repeat.
    """
    measured = [json.loads(line) for line in (source / "kernels.jsonl").read_text(encoding="utf-8").splitlines()]
    gemms: dict[tuple[str, ...], dict[int, float]] = defaultdict(dict)
    heads: dict[str, dict[tuple[str, ...], dict[int, float]]] = defaultdict(lambda: defaultdict(dict))
    small: dict[tuple[str, ...], dict[int, float]] = defaultdict(dict)
    for row in measured:
        latency, kind = _microseconds(row), SMALL_KERNELS.get(row["op"], "")
        if row["op"] == "gemm_bf16":
            gemms[str(row["N"]), str(row["K"])][row["M"]] = latency
        elif row["op"] == "sdpa_decode_bf16":
            key = (str(row["hq"]), str(row["hkv"]), str(row["batch"]))
            heads[f"attention/sdpa__bf16__{row['d']}__0"][key][row["ctx"]] = latency
        elif kind:
            width = row.get("N") or row["experts" if kind in ("softmax", "torch_topk") else "hidden"]
            small[kind, str(width)][row["M"]] = latency
    tables: dict[str, tuple[tuple[str, ...], str, Cells]] = {"gemm/bf16": (("n", "k"), "m", gemms)}
    tables |= {name: (("heads", "kv_heads", "batch"), "context", cells) for name, cells in heads.items()}
    tables["small/pytorch"] = (("kind", "width"), "rows", small)
    tables["moe/torch__torch_grouped__bf16"] = (EXPERT_COLUMNS, "tokens", _grouped(measured, small))
    changes = _changes(measured, json.loads((earlier / "kernels.json").read_text(encoding="utf-8")))
    header = (
        "gpu: h200\n"
        "hardware: NVIDIA H200 (SM90), one of the two of calibration/runs/h200x2_2026-11-30b\n"
        "source: measured by this project (pciesim measure)\n"
        "licence: Apache-2.0\n"
        "date: 2026-11-30\n"
        "versions: PyTorch 2.11, driver 580.159; kernels in a CUDA graph, weights and caches rotated past the L2\n"
        "split: >\n"
        "  split_tables.py h200, from kernels.jsonl of the run. Small kernels by (kind, width): searchsorted, gather\n"
        "  and index_add hold the index arithmetic of their call. Routed experts: grouped_up + silu_mul +\n"
        "  grouped_down, the silu_mul row with the nearest number of elements; tokens choose experts at random with\n"
        "  equal chance (uniform).\n"
        "repeatability: >\n"
        "  Against kernels.json of h200x2_2026-11-30, relative difference (median, 90th percentile) of equal shapes:\n"
        f"  {changes}.\n"
    )
    inputs = {"kernels.jsonl": _sha256(source / "kernels.jsonl"), "kernels.json": _sha256(earlier / "kernels.json")}
    _write(target, tables, header, inputs)


def _microseconds(row: Mapping[str, float]) -> float:
    return round(row["s"] * MICROSECONDS, 3)


def _grouped(measured: Sequence[Mapping[str, int]], small: Cells) -> Cells:
    """Both grouped GEMMs and the activation between them, by tokens."""
    rows = {(row["op"], row["inner"], row["M"]): row for row in measured if row["op"].startswith("grouped_")}
    widest = max(row["inner"] for row in rows.values())
    activations = {
        int(key[1]) * m: us for key, curve in small.items() if key[0] == "silu_mul" for m, us in curve.items()
    }
    found: dict[tuple[str, ...], dict[int, float]] = defaultdict(dict)
    for (op, inner, tokens), up in rows.items():
        if op != "grouped_up":
            continue
        elements = tokens * up["chosen"] * inner
        nearest = min(activations, key=lambda each: abs(math.log(each / elements)))
        key = tuple(map(str, (up["hidden"], widest, up["chosen"], up["experts"], widest // inner, 1, "uniform")))
        down = rows["grouped_down", inner, tokens]
        found[key][tokens] = round(_microseconds(up) + activations[nearest] + _microseconds(down), 3)
    return found


def _changes(later: Iterable[Mapping[str, float]], earlier: Iterable[Mapping[str, float]]) -> str:
    """How much equal shapes differ between two runs."""

    def shape(row: Mapping[str, float]) -> tuple[object, ...]:
        return tuple(row.get(name) for name in ("op", "M", "N", "K", "batch", "ctx", "hq", "hkv", "d"))

    before = {shape(row): row["s"] for row in earlier if "s" in row}
    found: dict[str, list[float]] = defaultdict(list)
    for row in later:
        if (seconds := before.get(shape(row))) is not None:
            found[str(row["op"])].append(abs(row["s"] / seconds - 1))
    parts = []
    for op, values in sorted(found.items()):
        if len(values) > 1:
            values.sort()
            parts.append(f"{op} {statistics.median(values):.1%}, {values[int(0.9 * (len(values) - 1))]:.1%}")
    return "; ".join(parts)


def gemm(rows: Iterable[Row]) -> dict[str, tuple[tuple[str, ...], str, Cells]]:
    """One file per weight precision: (n, k) against m."""
    tables: dict[str, dict[tuple[str, ...], dict[int, float]]] = defaultdict(lambda: defaultdict(dict))
    for row in rows:
        name = f"gemm/{PRECISIONS[row['gemm_dtype']]}"
        tables[name][row["n"], row["k"]][int(row["m"])] = float(row["latency_us"])
    return {name: (("n", "k"), "m", cells) for name, cells in tables.items()}


def experts(rows: Iterable[Row]) -> dict[str, tuple[tuple[str, ...], str, Cells]]:
    """One file per engine, backend and precision: shape, split and routing skew against tokens."""
    published = ("hidden_size", "inter_size", "topk", "num_experts", "moe_tp_size", "moe_ep_size", "distribution")
    tables: dict[str, dict[tuple[str, ...], dict[int, float]]] = defaultdict(lambda: defaultdict(dict))
    for row in rows:
        backend = EXPERT_BACKENDS[row["kernel_source"]]
        key = tuple(row[column] for column in published)
        if key[:4] == ("7168", "2048", "8", "256") and key[5] == "1" and not backend.startswith("trtllm"):
            continue  # faster than the memory can deliver the weights; see the manifest
        tables[f"moe/{backend}__{PRECISIONS[row['moe_dtype']]}"][key][int(row["num_tokens"])] = float(row["latency_us"])
    return {name: (EXPERT_COLUMNS, "tokens", cells) for name, cells in tables.items()}


def attention(rows: Iterable[Row]) -> dict[str, tuple[tuple[str, ...], str, Cells]]:
    """One file per backend, KV precision, head dimension and window: heads and batch against context."""
    tables: dict[str, dict[tuple[str, ...], dict[int, float]]] = defaultdict(lambda: defaultdict(dict))
    for row in rows:
        precision = PRECISIONS[row["kv_cache_dtype"]]
        name = f"attention/{row['kernel_source']}__{precision}__{row['head_dim']}__{row['window_size']}"
        key = (row["num_heads"], row["num_key_value_heads"], row["batch_size"])
        tables[name][key][int(row["step"]) + 1] = float(row["latency_us"])
    return {name: (("heads", "kv_heads", "batch"), "context", cells) for name, cells in tables.items()}


def delta_rule(rows: Iterable[Row]) -> dict[str, tuple[tuple[str, ...], str, Cells]]:
    """One file per kernel: heads against batch (decode), heads and batch against prompt tokens (prefill)."""
    samples: dict[str, dict[tuple[str, ...], dict[int, list[float]]]] = defaultdict(
        lambda: defaultdict(lambda: defaultdict(list))
    )
    for row in rows:
        heads = (row["num_k_heads"], row["num_v_heads"])
        decode = row["phase"] == "generation"
        key = heads if decode else (*heads, row["batch_size"])
        point = int(row["batch_size"] if decode else row["seq_len"])
        samples[f"delta_rule/{DELTA_RULE_KERNELS[row['kernel_source']]}"][key][point].append(float(row["latency_us"]))
    tables: dict[str, tuple[tuple[str, ...], str, Cells]] = {}
    for name, cells in samples.items():
        medians = {
            key: {point: round(statistics.median(values), 3) for point, values in curve.items()}
            for key, curve in cells.items()
        }
        decode = name.endswith("decode")
        columns = ("key_heads", "value_heads") if decode else ("key_heads", "value_heads", "batch")
        tables[name] = (columns, "batch" if decode else "tokens", medians)
    return tables


def repeatability(rows: Iterable[Row]) -> tuple[float, float]:
    """Largest over smallest, less one, of kernels that were measured for several models: (median, 90th percentile)."""
    samples: dict[tuple[str, ...], list[float]] = defaultdict(list)
    for row in rows:
        key = (row["kernel_source"], row["num_k_heads"], row["num_v_heads"], row["batch_size"], row["seq_len"])
        samples[key].append(float(row["latency_us"]))
    spreads = sorted(max(values) / min(values) - 1 for values in samples.values() if len(values) > 1)
    return statistics.median(spreads), spreads[int(0.9 * (len(spreads) - 1))]


def _rows(path: Path) -> list[Row]:
    with gzip.open(path, "rt", encoding="utf-8", newline="") as stream:
        return list(csv.DictReader(stream))


def _write(
    target: Path,
    tables: Mapping[str, tuple[tuple[str, ...], str, Cells]],
    header: str,
    inputs: Mapping[str, str],
) -> None:
    lines = [header, "inputs:\n", *(f"  {name}: {digest}\n" for name, digest in inputs.items()), "files:\n"]
    for name, (columns, axis, cells) in sorted(tables.items()):
        path = target / f"{name}.csv.gz"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(_packed(columns, axis, cells))
        lines.append(f"  {name}.csv.gz: {_sha256(path)}\n")
    (target / "manifest.yaml").write_text("".join(lines), encoding="utf-8")


def _packed(columns: tuple[str, ...], axis: str, cells: Cells) -> bytes:
    points = sorted({point for curve in cells.values() for point in curve})
    text = io.StringIO()
    text.write(",".join([*columns, *(f"us@{axis}={point}" for point in points)]) + "\n")
    for key in sorted(cells, key=_natural):
        curve = cells[key]
        values = [f"{curve[point]:g}" if point in curve else "" for point in points]
        text.write(",".join([*key, *values]) + "\n")
    # A fixed time stamp: the same rows give the same file.
    return gzip.compress(text.getvalue().encode(), mtime=0)


def _natural(key: tuple[str, ...]) -> tuple[tuple[int, str], ...]:
    return tuple((int(part), "") if part.isdigit() else (0, part) for part in key)


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


if __name__ == "__main__":
    main(sys.argv[1:])
