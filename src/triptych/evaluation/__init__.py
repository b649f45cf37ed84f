"""Evaluation: scores in, figures out; it knows no model and imports no torch."""

from triptych.evaluation.diagnostics import within_image_cosine
from triptych.evaluation.metrics import average_precision_at_k, bootstrap_interval, recall_at_k
from triptych.evaluation.protocols import (
    FASHIONIQ,
    PROTOCOLS,
    REFERENCE_REMOVED,
    Protocol,
    Reference,
    find_protocol,
)
from triptych.evaluation.queries import QueryRanks, evaluate_queries
from triptych.evaluation.ranking import UNRANKED, Ranking, ScoreBlock, rank
from triptych.evaluation.report import Evaluation, ModelInfo, NoiseInfo, Row, assemble, summarise
from triptych.evaluation.tables import Table, rich_table, to_markdown, to_tables

__all__ = [
    "FASHIONIQ",
    "PROTOCOLS",
    "REFERENCE_REMOVED",
    "UNRANKED",
    "Evaluation",
    "ModelInfo",
    "NoiseInfo",
    "Protocol",
    "QueryRanks",
    "Ranking",
    "Reference",
    "Row",
    "ScoreBlock",
    "Table",
    "assemble",
    "average_precision_at_k",
    "bootstrap_interval",
    "evaluate_queries",
    "find_protocol",
    "rank",
    "recall_at_k",
    "rich_table",
    "summarise",
    "to_markdown",
    "to_tables",
    "within_image_cosine",
]
