"""The sizes of a BLIP-2 model, to and from transformers' configuration."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from transformers import (
    Blip2QFormerConfig,
    Blip2VisionConfig,
    Blip2VisionModel,
    CLIPVisionConfig,
    CLIPVisionModel,
)

from triptych.errors import DataError

_VISION = {
    "image_size": "image_size",
    "patch_size": "patch_size",
    "image_width": "hidden_size",
    "vision_layers": "num_hidden_layers",
    "vision_heads": "num_attention_heads",
    "vision_intermediate": "intermediate_size",
    "vision_activation": "hidden_act",
    "vision_eps": "layer_norm_eps",
}
_QFORMER = {
    "hidden": "hidden_size",
    "layers": "num_hidden_layers",
    "heads": "num_attention_heads",
    "intermediate": "intermediate_size",
    "cross_attention_every": "cross_attention_frequency",
    "dropout": "hidden_dropout_prob",
    "vocabulary": "vocab_size",
    "positions": "max_position_embeddings",
    "activation": "hidden_act",
    "eps": "layer_norm_eps",
}


class Blip2Sizes(BaseModel):
    """Sizes of BLIP-2, stage 1; the defaults are those with EVA ViT-g/14."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    tower: Literal["eva", "clip"] = Field("eva", description="kind of vision transformer")
    image_size: int = Field(224, ge=1, description="side of the input picture, pixels")
    patch_size: int = Field(14, ge=1, description="side of a patch, pixels")
    image_width: int = Field(1408, ge=1, description="width of an image token")
    vision_layers: int = Field(39, ge=0, description="blocks of the tower")
    vision_heads: int = Field(16, ge=1, description="attention heads of the tower")
    vision_intermediate: int = Field(6144, ge=1, description="width of the tower's feed-forward layers")
    vision_activation: str = "gelu"
    vision_eps: float = 1e-6
    ln_vision_eps: float = Field(
        1e-5, description="of the LayerNorm on top; transformers has the tower's 1e-6"
    )
    queries: int = Field(32, ge=1, description="learned query tokens")
    hidden: int = Field(768, ge=1, description="width of the Q-Former")
    layers: int = Field(12, ge=1, description="layers of the Q-Former")
    heads: int = Field(12, ge=1, description="attention heads of the Q-Former")
    intermediate: int = Field(3072, ge=1, description="width of its feed-forward layers")
    cross_attention_every: int = Field(2, ge=1, description="cross-attention in every n-th layer")
    dropout: float = Field(0.1, ge=0, lt=1, description="dropout of the Q-Former")
    vocabulary: int = Field(30_523, ge=2, description="word embeddings: BERT's and [DEC]")
    positions: int = Field(512, ge=1, description="position embeddings")
    activation: str = "gelu"
    eps: float = 1e-12
    dim: int = Field(256, ge=1, description="width of the shared embedding")

    @model_validator(mode="after")
    def _check(self) -> Blip2Sizes:
        for width, heads in (("hidden", "heads"), ("image_width", "vision_heads")):
            if getattr(self, width) % getattr(self, heads):
                raise ValueError(
                    f"{width} = {getattr(self, width)} must be a multiple of {heads} = {getattr(self, heads)}"
                )
        if self.image_size % self.patch_size:
            raise ValueError(
                f"image_size = {self.image_size} must be a multiple of patch_size = {self.patch_size}"
            )
        return self

    @classmethod
    def vit_l(cls) -> Blip2Sizes:
        """Return the sizes with CLIP's ViT-L/14, whose last block is left out."""
        return cls(
            tower="clip",
            image_width=1024,
            vision_layers=23,
            vision_intermediate=4096,
            vision_activation="quick_gelu",
            vision_eps=1e-5,
        )

    @classmethod
    def read(cls, config: dict[str, Any], file: Path) -> Blip2Sizes:
        """Read transformers' configuration of ``Blip2ForImageTextRetrieval``.

        Raises:
            DataError: it is of another model, or of one that reads no text.
        """
        if config.get("model_type") != "blip-2":
            raise DataError(
                f'these weights are of another architecture: "{config.get("model_type", "nothing said")}", '
                'not "blip-2"',
                file=file,
                field="model_type",
                mend="Backbone blip2 needs Blip2ForImageTextRetrieval, such as Salesforce/blip2-itm-vit-g.",
            )
        vision = _complete(config.get("vision_config"), Blip2VisionConfig())
        qformer = _complete(config.get("qformer_config"), Blip2QFormerConfig())
        if not qformer["use_qformer_text_input"]:
            raise DataError(
                "this Q-Former reads no text (a captioning model, such as blip2-opt)",
                file=file,
                field="use_qformer_text_input",
                mend="Backbone blip2 needs Blip2ForImageTextRetrieval, such as Salesforce/blip2-itm-vit-g.",
            )
        if qformer["encoder_hidden_size"] != vision["hidden_size"]:
            raise DataError(
                f"the Q-Former reads image tokens of {qformer['encoder_hidden_size']} values and the tower gives "
                f"{vision['hidden_size']}",
                file=file,
                field="encoder_hidden_size",
            )
        try:
            return cls(
                tower="clip" if vision.get("model_type") == "clip_vision_model" else "eva",
                **{ours: vision[theirs] for ours, theirs in _VISION.items()},
                ln_vision_eps=vision.get("post_layer_norm_eps", vision["layer_norm_eps"]),
                **{ours: qformer[theirs] for ours, theirs in _QFORMER.items()},
                queries=config.get("num_query_tokens", 32),
                dim=config.get("image_text_hidden_size", 256),
            )
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            raise DataError(f"a size does not fit: {first['msg']}", file=file) from error

    def transformers_config(self) -> dict[str, Any]:
        """Return what :meth:`read` reads."""
        return {
            "model_type": "blip-2",
            "vision_config": {
                **{theirs: getattr(self, ours) for ours, theirs in _VISION.items()},
                "model_type": "clip_vision_model" if self.tower == "clip" else "blip_2_vision_model",
                "post_layer_norm_eps": self.ln_vision_eps,
            },
            "qformer_config": {
                **{theirs: getattr(self, ours) for ours, theirs in _QFORMER.items()},
                "model_type": "blip_2_qformer",
                "attention_probs_dropout_prob": self.dropout,
                "encoder_hidden_size": self.image_width,
                "use_qformer_text_input": True,
            },
            "num_query_tokens": self.queries,
            "image_text_hidden_size": self.dim,
        }

    def qformer_config(self) -> Blip2QFormerConfig:
        """Return the Q-Former's configuration."""
        return Blip2QFormerConfig(**self.transformers_config()["qformer_config"])

    def vision_model(self) -> Blip2VisionModel | CLIPVisionModel:
        """Build the vision tower, its weights drawn."""
        values = {key: value for key, value in self.transformers_config()["vision_config"].items()}
        del values["model_type"], values["post_layer_norm_eps"]
        if self.tower == "clip":
            return CLIPVisionModel(CLIPVisionConfig(**values))
        return Blip2VisionModel(Blip2VisionConfig(**values, initializer_range=0.02))


def _complete(given: Any, defaults: Any) -> dict[str, Any]:
    values: dict[str, Any] = {**defaults.to_dict(), **(given if isinstance(given, dict) else {})}
    return values
