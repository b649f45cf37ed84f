"""Frozen word states: those of MiniLM, whatever a text is encoded or stored with."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

TEXTS = ["make it red", "", "is a lot shorter and has a v neck", "Café, déjà-vu 👗!", "red", "no sleeves"]


@pytest.fixture(scope="module")
def folder(lite_weights: None) -> Path:
    from triptych.backbones.lite import weight_paths

    return weight_paths()[1]


@pytest.fixture
def minilm(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The encoder with an empty store."""
    from triptych.backbones.text_states import MiniLMStates

    monkeypatch.setenv("TRIPTYCH_CACHE", str(tmp_path))
    return MiniLMStates(folder)


def test_they_are_those_of_the_plain_model(minilm: Any, folder: Path) -> None:
    """The mean over all word pieces (the published sentence vector, not normalised), then each word piece."""
    from transformers import AutoModel, AutoTokenizer

    tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModel.from_pretrained(folder).eval()
    inputs = tokenizer(TEXTS, padding=True, return_tensors="pt")
    with torch.no_grad():
        hidden = model(**inputs).last_hidden_state
    mask = inputs["attention_mask"][:, :, None]
    means = (hidden * mask).sum(dim=1) / mask.sum(dim=1)
    states, found_mask = minilm(TEXTS)
    assert states.dtype == torch.float32
    torch.testing.assert_close(states[:, 0], means, atol=2e-3, rtol=2e-3)
    for row, length in enumerate(mask.sum(dim=(1, 2)).tolist()):
        words = hidden[row, 1 : length - 1]
        assert int(found_mask[row].sum()) == 1 + len(words)
        torch.testing.assert_close(states[row, 1 : 1 + len(words)], words, atol=2e-3, rtol=2e-3)
        assert not states[row, 1 + len(words) :].any()
        assert not found_mask[row, 1 + len(words) :].any()


def test_nothing_depends_on_company_or_store(minilm: Any) -> None:
    """Bit for bit: alone, in a batch, in another order, stored or not."""
    together, mask = minilm(TEXTS)
    many = [f"{text} {number}" for number in range(9) for text in TEXTS]
    minilm.prepare([*many[::-1], *TEXTS])
    stored, _ = minilm(TEXTS)
    assert torch.equal(together, stored)
    for row, text in enumerate(TEXTS):
        minilm._recent.clear()
        alone: Tensor = minilm._encode([text])[0].float()
        assert torch.equal(alone, together[row][mask[row]])


def test_an_empty_text_is_one_position(minilm: Any) -> None:
    states, mask = minilm(["", "red dress"])
    assert mask.tolist() == [[True, False, False], [True, True, True]]
    assert states[0, 0].abs().sum() > 0


def test_a_long_text_is_cut_to_32_positions(minilm: Any) -> None:
    words = ["red"] * 30
    exactly, longer = " ".join([*words, "dress"]), " ".join([*words, "dress", "and", "more"])
    states, mask = minilm([exactly, longer])
    assert states.shape == (2, 32, 384)
    assert bool(mask.all())
    assert torch.equal(states[0], states[1])


def test_what_is_prepared_is_kept(minilm: Any, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from triptych.backbones.text_states import MiniLMStates

    seen: list[tuple[int, int]] = []
    minilm.prepare([*TEXTS, *TEXTS], lambda done, total: seen.append((done, total)))
    assert seen == [(6, 6)]
    expected, _ = minilm(TEXTS)
    later = MiniLMStates(folder)
    encoded: list[str] = []
    monkeypatch.setattr(later, "_encode", lambda texts: encoded.extend(texts) or [])
    later.prepare(TEXTS)
    assert torch.equal(later(TEXTS)[0], expected)
    assert encoded == []


def test_unprepared_texts_are_remembered_but_not_without_end(
    minilm: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from triptych.backbones import text_states

    monkeypatch.setattr(text_states, "_REMEMBERED", 3)
    first, _ = minilm(TEXTS)
    assert len(minilm._recent) == 3
    assert torch.equal(minilm(TEXTS)[0], first)
    assert len(minilm._opened()) == 0


def test_an_interrupted_build_goes_on(minilm: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from triptych.backbones import text_states

    monkeypatch.setattr(text_states, "_CHUNK", 2)

    def stop(done: int, total: int) -> None:
        if done == 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        minilm.prepare(TEXTS, stop)
    assert len(minilm._opened()) == 4
    minilm.prepare(TEXTS)
    assert len(minilm._opened()) == 6


def test_it_stays_frozen(minilm: Any) -> None:
    minilm.train()
    assert not any(module.training for module in minilm.modules())
    assert not any(value.requires_grad for value in minilm.parameters())


def test_gradients_stop_at_the_states(minilm: Any) -> None:
    states, _ = minilm(TEXTS)
    assert not states.requires_grad
    assert np.isfinite(states.numpy()).all()
