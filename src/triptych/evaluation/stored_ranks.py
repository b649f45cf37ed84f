"""Where the answers of every query stand, small enough for a result's JSON: what paired comparisons need."""

from __future__ import annotations

import base64
import binascii
import hashlib
import zlib

import numpy as np
from pydantic import BaseModel, ConfigDict

from triptych.errors import DataError
from triptych.evaluation.queries import QueryRanks
from triptych.evaluation.ranking import UNRANKED, IntArray

_UNRANKED = -2  # in a file; -1 is NO_SUBSET
_LARGEST = 64 * 2**20  # bytes of one unpacked list


class StoredRanks(BaseModel):
    """The ranks of one category's queries; lists of int32, zlib-packed, base64.

    Attributes:
        split: such as ``val``.
        category: such as ``dress``.
        gallery_size: how many images were ranked.
        queries: SHA-256 over the queries' ids in order; two results with the same can be compared query by query.
        count: how many queries.
        target: ranks of the targets.
        reference: ranks of the references.
        subset: ranks in the queries' subsets; None where there are none.
        answer_counts: how many right answers each query has.
        answers: their ranks, query after query.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    split: str
    category: str
    gallery_size: int
    queries: str
    count: int
    target: str
    reference: str
    subset: str | None = None
    answer_counts: str
    answers: str

    @classmethod
    def pack(cls, ranks: QueryRanks) -> StoredRanks:
        """Pack the ranks of a category."""
        counts = np.array([len(own) for own in ranks.answers], dtype=np.int64)
        return cls(
            split=ranks.split,
            category=ranks.category,
            gallery_size=ranks.gallery_size,
            queries=hashlib.sha256("\n".join(ranks.triplet_ids).encode()).hexdigest(),
            count=len(ranks),
            target=_pack(ranks.target),
            reference=_pack(ranks.reference),
            subset=None if ranks.subset is None else _pack(ranks.subset),
            answer_counts=_pack(counts),
            answers=_pack(np.concatenate([*ranks.answers, np.empty(0, dtype=np.int64)])),
        )

    def unpack(self) -> QueryRanks:
        """Return the ranks; the queries' ids are not kept, so their positions stand for them.

        Raises:
            DataError: a list is damaged.
        """
        counts = self._list("answer_counts", self.count)
        answers = self._list("answers", int(counts.sum()))
        return QueryRanks(
            split=self.split,
            category=self.category,
            gallery_size=self.gallery_size,
            triplet_ids=tuple(map(str, range(self.count))),
            target=self._list("target", self.count),
            reference=self._list("reference", self.count),
            answers=tuple(np.split(answers, np.cumsum(counts)[:-1])) if self.count else (),
            subset=None if self.subset is None else self._list("subset", self.count),
        )

    def _list(self, name: str, length: int) -> IntArray:
        try:
            packed = base64.b64decode(getattr(self, name), validate=True)
            data = zlib.decompressobj().decompress(packed, _LARGEST)
            values = np.frombuffer(data, dtype="<i4").astype(np.int64)
        except (binascii.Error, zlib.error, ValueError) as error:
            raise DataError(f"the ranks of {self.category} are damaged: {error}", field=name) from error
        if len(values) != length:
            problem = f"the ranks of {self.category} are damaged: {len(values)} in place of {length}"
            raise DataError(problem, field=name, mend="Write it again with `triptych evaluate`.")
        values[values == _UNRANKED] = UNRANKED
        return values


def _pack(values: IntArray) -> str:
    numbers = np.where(values == UNRANKED, _UNRANKED, values).astype("<i4")
    return base64.b64encode(zlib.compress(numbers.tobytes(), 9)).decode("ascii")
