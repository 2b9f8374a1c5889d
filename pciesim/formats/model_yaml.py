"""Model files: ``models/*.yaml`` to a :class:`~pciesim.model.ModelSpec`.

A file names its blocks (mixers and MLPs) once, then says how layers are made of them::

    schema: pciesim/model/1
    name: Example-8B
    hidden: 4096
    vocabulary: 128256
    precision: {attention: fp8, o_proj: bf16, kv_cache: fp8}
    blocks:
      attention: {kind: attention, heads: 32, kv_heads: 8, head_dim: 128}
      mlp: {kind: dense_mlp, intermediate: 14336}
    layers:
      - {repeat: 32, pattern: [attention + mlp]}

``precision`` is by class of modules or by the name of one matrix (or fused GEMM), which wins over its class. What it
does not name has the ``default``, which is bf16 unless given. The default does not reach the router, the embedding, the
head and the KV cache: quantised checkpoints leave those alone, so they are named or bf16. Norms are always bf16. A
block may have a ``precision`` of its own, over that of the file.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Final, Literal

from pydantic import Field, PositiveInt

from pciesim.errors import InputError, UnknownName
from pciesim.formats.documents import Document, read_document, validate_document
from pciesim.formats.model_blocks import PRECISION_CLASSES, BlockDocument, Count, Precisions
from pciesim.model import (
    Absent,
    DenseAndMoe,
    DenseMlp,
    Layer,
    LayerRun,
    Mixer,
    Mlp,
    ModelSpec,
    Module,
    Moe,
    MtpHead,
    Precision,
)

MAX_LAYERS: Final = 2000
"""Of a run or a pattern: far above any model, low enough that a slip of the pen costs no memory."""

__all__ = ["LayersDocument", "ModelDocument", "MtpDocument", "parse_model", "read_model"]


class LayersDocument(Document):
    """A run: ``pattern`` lists layers as ``mixer + mlp`` (or one of the two), by block name."""

    repeat: Annotated[int, Field(ge=1, le=MAX_LAYERS)] = 1
    pattern: Annotated[tuple[str, ...], Field(min_length=1, max_length=MAX_LAYERS)]


class MtpDocument(Document):
    """Multi-token-prediction modules, each with these layers, at their own precision (bf16 unless said)."""

    modules: PositiveInt = 1
    layers: Annotated[tuple[str, ...], Field(min_length=1)]
    precision: dict[str, Precision] = Field(default_factory=dict)


class ModelDocument(Document):
    """A whole file. ``post_norms`` and ``streams`` are those of :class:`pciesim.model.Layer`, for every layer.

    ``vision_parameters`` null says that there is an image tower whose size is not known.
    """

    format: Literal["pciesim/model/1"] = Field(alias="schema")
    name: Annotated[str, Field(min_length=1)]
    source: str = ""
    notes: str = ""
    hidden: PositiveInt
    vocabulary: PositiveInt
    tied_embeddings: bool = False
    post_norms: bool = False
    streams: PositiveInt = 1
    precision: dict[str, Precision] = Field(default_factory=dict)
    blocks: Annotated[dict[str, BlockDocument], Field(min_length=1)]
    layers: Annotated[tuple[LayersDocument, ...], Field(min_length=1)]
    mtp: MtpDocument | None = None
    vision_parameters: Count | None = 0

    def to_domain(self, *, source: str = "") -> ModelSpec:
        """The model. Raises InputError where blocks, patterns and precisions do not fit together."""
        blocks = {
            name: block.to_domain({**self.precision, **block.precision} if block.precision else self.precision)
            for name, block in self.blocks.items()
        }
        runs = tuple(
            LayerRun(pattern=self._layers(run.pattern, blocks, source), repeat=run.repeat) for run in self.layers
        )
        matrices = _names({layer for run in runs for layer in run.pattern}, self.hidden)
        for precision in (self.precision, *(block.precision for block in self.blocks.values())):
            _check_keys(precision, matrices, source)
        return ModelSpec(
            name=self.name,
            hidden=self.hidden,
            vocabulary=self.vocabulary,
            runs=runs,
            tied_embeddings=self.tied_embeddings,
            embedding_precision=self.precision.get(Module.EMBEDDING, Precision.BF16),
            head_precision=self.precision.get(Module.LM_HEAD, Precision.BF16),
            kv_precision=self.precision.get("kv_cache", Precision.BF16),
            mtp=self._mtp(source),
            vision_parameters=self.vision_parameters,
            source=self.source,
        )

    def _mtp(self, source: str) -> MtpHead | None:
        if self.mtp is None:
            return None
        precision = self.mtp.precision
        blocks = {name: block.to_domain(precision) for name, block in self.blocks.items()}
        layers = self._layers(self.mtp.layers, blocks, source)
        _check_keys(precision, _names(set(layers), self.hidden) | {"mtp_fc"}, source)
        return MtpHead(layers=layers, modules=self.mtp.modules, precision=precision.get("mtp_fc", Precision.BF16))

    def _layers(self, texts: tuple[str, ...], blocks: Mapping[str, Mixer | Mlp], source: str) -> tuple[Layer, ...]:
        built = {text: _halves(text, blocks, source) for text in dict.fromkeys(texts)}
        return tuple(
            Layer(mixer=mixer, mlp=mlp, post_norms=self.post_norms, streams=self.streams)
            for mixer, mlp in (built[text] for text in texts)
        )


def read_model(path: Path) -> ModelSpec:
    """The model of a YAML file. Raises InputError (file:line:column where it can) on any fault."""
    return read_document(path, ModelDocument).to_domain(source=str(path))


def parse_model(text: str, *, source: str) -> ModelSpec:
    """As :func:`read_model`, from text; ``source`` is how errors name it."""
    return validate_document(text, ModelDocument, source=source).to_domain(source=source)


def _names(layers: set[Layer], hidden: int) -> set[str]:
    linears = [linear for layer in layers for linear in layer.linears(hidden)]
    return {linear.name for linear in linears} | {linear.fused for linear in linears}


def _check_keys(precision: Precisions, matrices: set[str], source: str) -> None:
    valid = {str(name) for name in PRECISION_CLASSES} | matrices
    for name in precision:
        if name not in valid:
            raise UnknownName("module or matrix in precision", name, valid, where=source)


def _halves(text: str, blocks: Mapping[str, Mixer | Mlp], source: str) -> tuple[Mixer, Mlp]:
    """``'gdn + moe'`` to a mixer and an MLP, either of which may be missing."""
    mixer: Mixer = Absent()
    mlp: Mlp = Absent()
    for name in (part.strip() for part in text.split("+")):
        if name not in blocks:
            raise UnknownName("block", name, blocks, where=source)
        block = blocks[name]
        if isinstance(block, DenseMlp | Moe | DenseAndMoe) and isinstance(mlp, Absent):
            mlp = block
        elif not isinstance(block, DenseMlp | Moe | DenseAndMoe) and isinstance(mixer, Absent):
            mixer = block
        else:
            raise InputError(f"layer '{text}' has two blocks of one kind; write 'mixer + mlp'", where=source)
    return mixer, mlp
