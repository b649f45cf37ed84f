"""The page under axe-core's rules: no serious or critical violation, light or dark, wide or narrow."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

CIRCLE = "plain-large-red-circle"
ROOT = Path(__file__).parents[3]
PLACES = (os.environ.get("TRIPTYCH_AXE", ""), ROOT / ".node" / "node_modules" / "axe-core" / "axe.min.js")


@pytest.fixture(scope="module")
def axe() -> str:
    """The rules' source."""
    for place in PLACES:
        if place and Path(place).is_file():
            return Path(place).read_text(encoding="utf-8")
    pytest.skip("axe-core is not installed; run: make browser")


def violations(page: Any, axe: str) -> list[str]:
    page.evaluate(axe)
    found = page.evaluate("axe.run(document, { resultTypes: ['violations'] })")
    assert len(found["passes"]) > 10
    return [
        f"{one['impact']}: {one['id']}: {[node['target'] for node in one['nodes']]}"
        f" {one['nodes'][0]['failureSummary']}"
        for one in found["violations"]
        if one["impact"] in ("serious", "critical")
    ]


@pytest.mark.parametrize(("scheme", "size"), [("light", (1280, 800)), ("dark", (390, 844))])
def test_no_serious_violation(
    scheme: str, size: tuple[int, int], shop: Any, visit: Callable[..., Any], axe: str, screenshots: Path
) -> None:
    one = visit(shop.url, size=size, color_scheme=scheme, reduced_motion="reduce", refusals=True)
    page = one.page
    page.wait_for_selector("#grid .take")
    page.click("#filter")
    page.get_by_label("red 16").check()
    one.until("document.querySelector('#subtitle').textContent.startsWith('16 pictures')")
    assert violations(page, axe) == []
    one.take(CIRCLE)
    one.search("as a square")
    page.click("summary")
    page.click("#mattered")
    page.wait_for_selector(".veil")
    page.locator(".judge.up").nth(1).click()
    page.wait_for_selector(".judge[aria-pressed=true]")
    page.get_by_role("button", name="as one more reference").first.click()
    assert violations(page, axe) == []
    page.screenshot(path=screenshots / f"everything-{scheme}.png", full_page=True)
    page.route("**/v1/search", lambda route: route.abort())
    page.click("#go")
    page.wait_for_selector("#problem:not([hidden])")
    assert violations(page, axe) == []
