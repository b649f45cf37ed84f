"""The page's files: what they weigh, what they may load, and that they load it."""

import re
from typing import Any

import pytest

from triptych.server.static_page import FOLDER, POLICY

MOST = 1_000_000


def test_the_policy_lets_nothing_in() -> None:
    rules = dict(rule.split(" ", 1) for rule in POLICY.split("; "))
    assert rules["default-src"] == "'none'"
    for name in ("script-src", "style-src", "img-src", "connect-src"):
        assert rules[name] == "'self'"
    assert "unsafe" not in POLICY


@pytest.mark.parametrize("path", ["/", "/page/app.js", "/page/style.css", "/page/icon.svg"])
def test_every_file_carries_the_policy(path: str, client: Any) -> None:
    response = client.get(path)
    assert response.status_code == 200
    assert response.headers["content-security-policy"] == POLICY
    assert response.headers["x-content-type-options"] == "nosniff"
    again = client.get(path, headers={"if-none-match": response.headers["etag"]})
    assert again.status_code == (200 if path == "/" else 304)


def test_no_way_out_of_the_folder(client: Any) -> None:
    for path in ("/page/../app.py", "/page/%2e%2e/app.py", "/page/..%2fapp.py", "/page/nothing.js", "/page/"):
        assert client.get(path).status_code == 404, path


def test_markup_has_no_script_style_or_address_of_its_own() -> None:
    html = (FOLDER / "index.html").read_text()
    assert not re.search(r"<style|\sstyle=|\son\w+=|javascript:", html)
    assert re.findall(r"<script[^>]*>", html) == ['<script type="module" src="page/app.js">']
    for path in FOLDER.iterdir():
        text = path.read_text().replace("http://www.w3.org/2000/svg", "")
        assert not re.search(
            r"https?:|//[a-z]+\.|innerHTML|insertAdjacentHTML|\beval\b|new Function", text
        ), path.name


def test_all_that_is_named_is_there_and_all_that_is_there_is_named() -> None:
    html = (FOLDER / "index.html").read_text()
    named = set(re.findall(r'(?:href|src)="page/([^"]+)"', html))
    scripts = [path for path in FOLDER.iterdir() if path.suffix == ".js"]
    for path in scripts:
        imported = set(re.findall(r'from "\./([^"]+)"', path.read_text()))
        assert imported <= named, path.name  # else the browser finds it late
    assert named | {"index.html"} == {path.name for path in FOLDER.iterdir()}
    ids = set(re.findall(r'\sid="([^"]+)"', html))
    for path in scripts:
        assert set(re.findall(r'byId\("([^"]+)"\)', path.read_text())) <= ids, path.name


def test_it_is_light() -> None:
    assert sum(path.stat().st_size for path in FOLDER.iterdir()) < MOST / 5
