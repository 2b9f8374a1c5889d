"""The model: layers as runs of equal layers, each a list of weight matrices with their split and precision.

One description serves every question. The parameter total, the bytes a GPU holds and reads, and the GEMMs of the
schedule all come from the same :class:`Linear` list, so they cannot disagree. GPUs and engines are not known here.
"""

from pciesim.model.mixers import Absent, Attention, CompressedAttention, Indexer, Mla, QkNorm
from pciesim.model.mlps import DenseAndMoe, DenseMlp, Moe
from pciesim.model.recurrent import GatedDeltaNet, KimiDelta, Mamba2
from pciesim.model.spec import Layer, LayerRun, Mixer, Mlp, ModelSpec, MtpHead
from pciesim.model.weights import Linear, Module, Overrides, Precision, Split, Sum, Vector, at_precision

__all__ = [
    "Absent", "Attention", "CompressedAttention", "DenseAndMoe", "DenseMlp", "GatedDeltaNet", "Indexer", "KimiDelta",
    "Layer", "LayerRun", "Linear", "Mamba2", "Mixer", "Mla", "Mlp", "ModelSpec", "Module", "Moe", "MtpHead",
    "Overrides", "Precision", "QkNorm", "Split", "Sum", "Vector", "at_precision",
]  # fmt: skip
