"""Pages to look at: one HTML file each, with its pictures and style inside, no script and nothing fetched."""

from triptych.studies.html.curves import learning_curves_svg
from triptych.studies.html.demo import demo_report, result_row
from triptych.studies.html.search import search_page
from triptych.studies.html.views import Answers, Comparison, Figure, HitView, Picture, QueryView, ResultRow

__all__ = [
    "Answers",
    "Comparison",
    "Figure",
    "HitView",
    "Picture",
    "QueryView",
    "ResultRow",
    "demo_report",
    "learning_curves_svg",
    "result_row",
    "search_page",
]
