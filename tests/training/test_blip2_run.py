"""A run on BLIP-2: start from a converted checkpoint, train, evaluate and search what came out."""

import json
from pathlib import Path

import pytest
import torch

from triptych.backbones.registry import create_backbone
from triptych.errors import UsageError
from triptych.search.engine import search
from triptych.training.convert import convert
from triptych.training.evaluate import evaluate
from triptych.training.model import load_model
from triptych.training.train import train
from triptych.triplets import Benchmark

SIZES = {
    "image_size": 28,
    "image_width": 24,
    "vision_layers": 1,
    "vision_heads": 4,
    "vision_intermediate": 32,
    "queries": 4,
    "hidden": 24,
    "layers": 2,
    "heads": 4,
    "intermediate": 32,
    "dim": 16,
    "dropout": 0.0,
}


@pytest.fixture(scope="module")
def converted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model folder made of a checkpoint with transformers' names: BERT's vocabulary, tiny widths."""
    from triptych.backbones.blip2 import stored_name

    folder = tmp_path_factory.mktemp("converted")
    backbone = create_backbone({"name": "blip2", "weights": None, "sizes": SIZES}, seed=2)
    state = {stored_name(name, 1): value for name, value in backbone.state_dict().items()}
    torch.save(state, folder / "pytorch_model.bin")
    made = convert(folder / "pytorch_model.bin", folder / "model", heads=4, vision_heads=4)
    assert made.tokenizer
    assert made.left_out == ()
    return folder / "model"


def test_from_a_checkpoint_to_figures(converted: Path, bench: Benchmark, tmp_path: Path) -> None:
    training = {"epochs": 1, "batch_size": 20, "learning_rate": 1e-3}
    run = train(bench, tmp_path / "run", method="sprc", init=converted, training=training)
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    assert config["backbone"] == {"name": "blip2", "weights": str(converted)}
    before, after = load_model(converted), load_model(run.folder)
    assert after.settings["backbone"] == config["backbone"]
    assert not any(name.startswith("backbone.tower") for name in after.backbone.trained_state())
    for name in ("ln_vision.weight", "query_tokens", "embeddings.word_embeddings.weight"):
        assert not torch.equal(before.backbone.state_dict()[name], after.backbone.state_dict()[name]), name
    assert before.backbone.fingerprint == after.backbone.fingerprint
    for source in (converted, run):
        row = evaluate(source, bench).row("composed", "kept")
        assert 0 <= row.mean["R@10"] <= 100
    reference = bench.train.column("reference")[0]
    assert len(search(run, bench, reference=reference, text="make it red", top=3)) == 3


def test_what_is_said_wins_over_what_init_says(converted: Path, bench: Benchmark, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="there is no such folder"):
        train(
            bench,
            tmp_path / "run",
            init=converted,
            backbone={"name": "blip2", "weights": "/nowhere"},
            training={"batch_size": 20},
        )
    with pytest.raises(UsageError, match=r"(?s)\"intent\" needs a Q-Former.*lite, blip2"):
        train(bench, tmp_path / "run", backbone="clip", training={"batch_size": 20})
    assert not (tmp_path / "run").exists()
