"""Alignment: teach a backbone's Q-Former to match pictures and captions before it sees a triplet.

BLIP-2 comes with such a first stage; a small Q-Former needs it too, or the noise-robust losses, which never pull,
underfit.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor

from triptych.backbones.base import Backbone
from triptych.backbones.registry import create_backbone, settled
from triptych.backbones.token_cache import TokenCache
from triptych.errors import DataError, UsageError, explain_validation
from triptych.objectives import info_nce, similarity, symmetric
from triptych.randomness import derive_seed, generator
from triptych.training.model import Model, save_model
from triptych.training.schedule import learning_rate_factor
from triptych.triplets import ImageStore
from triptych.triplets.text import clean

Stages = Callable[[str, int, int], None]


class AlignConfig(BaseModel):
    """Settings of the alignment."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    epochs: int = Field(8, ge=1, description="passes over the (image, caption) pairs")
    batch_size: int = Field(128, ge=2, description="pairs a step")
    learning_rate: float | None = Field(
        None, gt=0, description="peak rate; twice the backbone's default where not given"
    )
    temperature: float = Field(0.04, gt=0, description="softmax temperature")
    identity: float = Field(
        0.0,
        ge=0,
        description="weight of a term in which each picture, composed with an empty text, must find itself",
    )
    weight_decay: float = Field(0.05, ge=0, description="AdamW weight decay")
    seed: int = Field(0, ge=0, description="seed of weights, order and dropout")


def read_captions(
    path: Path,
    *,
    image_column: str | None = None,
    caption_column: str | None = None,
    split: str | None = "train",
    warn: Callable[[str], None] | None = None,
) -> list[tuple[str, str]]:
    """Read (image id, caption) pairs from a CSV file.

    Args:
        path: CSV with a header.
        image_column: by default ``image_id``, ``image`` or ``id``.
        caption_column: by default ``caption``, ``text``, ``title`` or ``name``.
        split: keep rows of this split only, where there is a ``split`` column: captions of validation pictures
            would leak what is measured later. None keeps all.
        warn: called with a sentence where rows without image or caption were left out.

    Raises:
        DataError: the file cannot be read as CSV, a column is missing, or no pair is left.
    """
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.DictReader(file)
            names = reader.fieldnames or []
            image = _column(path, names, image_column, ("image_id", "image", "id"), "--image-column")
            caption = _column(
                path, names, caption_column, ("caption", "text", "title", "name"), "--caption-column"
            )
            rows = [
                (row[image], clean(row[caption] or ""))
                for row in reader
                if split is None or row.get("split") in (None, split)
            ]
    except FileNotFoundError as error:
        raise DataError("there is no such file", file=path) from error
    except OSError as error:
        raise DataError(f"cannot be read: {error.strerror}", file=path) from error
    except UnicodeDecodeError as error:
        raise DataError("is not UTF-8 text", file=path, mend="Save it with the encoding UTF-8.") from error
    except csv.Error as error:
        raise DataError(f"is not CSV: {error}", file=path, row=reader.line_num, unit="line") from error
    pairs = [(image, text) for image, text in rows if image and text]
    if not pairs:
        of_split = f' of split "{split}"' if split is not None and "split" in names else ""
        raise DataError(f"holds no (image, caption) pair{of_split}", file=path)
    if warn and len(pairs) < len(rows):
        warn(f"{len(rows) - len(pairs)} of {len(rows)} rows of {path.name} have no image or no caption")
    return pairs


def align(
    images: ImageStore,
    pairs: Sequence[tuple[str, str]],
    folder: str | Path,
    *,
    backbone: str | Mapping[str, Any] = "lite",
    settings: Mapping[str, Any] | None = None,
    cache: str | Path | None = None,
    stages: Stages | None = None,
) -> Model:
    """Train a backbone's Q-Former on (image, caption) pairs and write a model folder.

    Symmetric InfoNCE between the text-only pass and the image pass, with the retrieval score.

    Args:
        images: the pictures.
        pairs: image id and caption.
        folder: where the model goes; ``train(init=folder)`` starts from it.
        backbone: a name, or ``{"name": ..., sizes}``.
        settings: of :class:`AlignConfig`.
        cache: the token cache's folder.
        stages: called with (what is being done, done, total).

    Raises:
        DataError: an image is missing or unreadable, or the loss is not finite.
        UsageError: a setting is unknown, or the batch is larger than the data.
    """
    config = explain_validation(AlignConfig, dict(settings or {}), "align")
    if config.batch_size > len(pairs):
        raise UsageError(f"a batch of {config.batch_size} is larger than the data ({len(pairs)} pairs)")
    report = stages or (lambda what, done, total: None)
    chosen = settled({"name": backbone} if isinstance(backbone, str) else dict(backbone))
    model = create_backbone(chosen, seed=config.seed, progress=lambda d, t: report("weights, MB", d, t))
    tokens = TokenCache(model, Path(cache) if cache else None)
    keys = tokens.add_images(
        images, sorted({image for image, _ in pairs}), model, lambda d, t: report("image tokens", d, t)
    )
    model.prepare_texts([text for _, text in pairs], lambda d, t: report("captions", d, t))
    rows = tokens.rows([keys[image] for image, _ in pairs])
    with torch.random.fork_rng(devices=[]):
        loss = _optimise(model, tokens, rows, [text for _, text in pairs], config, report)
    model.eval()
    info = {"stage": "alignment", "pairs": len(pairs), "epochs": config.epochs, "loss": round(loss, 4)}
    save_model(Path(folder), model, None, {"backbone": chosen, "method": None}, info)
    return Model(model, None, {"backbone": chosen, "method": None}, info)


def _optimise(
    model: Backbone, cache: TokenCache, rows: Any, texts: list[str], config: AlignConfig, report: Stages
) -> float:
    peak = config.learning_rate or 2 * model.default_learning_rate
    parameters = [value for value in model.parameters() if value.requires_grad]
    optimizer = torch.optim.AdamW(
        parameters, lr=peak, betas=(0.9, 0.98), eps=1e-7, weight_decay=config.weight_decay
    )
    steps = len(rows) // config.batch_size
    total, loss = steps * config.epochs, torch.zeros(())
    model.train()
    for epoch in range(config.epochs):
        order = generator(config.seed, "order", epoch).permutation(len(rows))
        for step in range(steps):
            batch = order[step * config.batch_size : (step + 1) * config.batch_size]
            done = epoch * steps + step
            for group in optimizer.param_groups:
                group["lr"] = peak * learning_rate_factor(
                    done, total_steps=total, warmup_steps=min(steps, total // 10), kind="cosine"
                )
            torch.manual_seed(derive_seed(config.seed, "dropout", epoch, step))
            tokens = cache.gather(rows[batch]).to(model.device)
            loss = _contrast(model, tokens, [texts[i] for i in batch], config)
            if not torch.isfinite(loss):
                raise DataError(
                    f"the loss is not finite in epoch {epoch + 1}, step {step + 1}; nothing was written",
                    mend=f"Lower the learning rate, which is {peak:g}.",
                )
            optimizer.zero_grad()
            torch.autograd.backward(loss)
            torch.nn.utils.clip_grad_norm_(parameters, 1.0)
            optimizer.step()
            report("alignment", done + 1, total)
    return float(loss.detach())


def _contrast(model: Backbone, tokens: Tensor, texts: list[str], config: AlignConfig) -> Tensor:
    targets = model.targets(tokens)
    match = partial(info_nce, temperature=config.temperature)
    loss = symmetric(match, similarity(model.text(texts), targets)).mean()
    if config.identity:
        composed = model.compose(tokens, [""] * len(texts)).vector
        loss = loss + config.identity * symmetric(match, similarity(composed, targets)).mean()
    return loss


def _column(path: Path, names: Sequence[str], wanted: str | None, usual: Sequence[str], option: str) -> str:
    for name in (wanted,) if wanted else usual:
        if name in names:
            return name
    raise DataError(
        f'has no column "{wanted}"' if wanted else f"has none of the columns {', '.join(usual)}",
        file=path,
        field=wanted,
        mend=f"It has: {', '.join(names)}. Name the right one with {option}.",
    )
