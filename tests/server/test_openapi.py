"""Whatever the OpenAPI document allows, and what it forbids, is never answered by a fault of ours."""

import shutil
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings

schemathesis = pytest.importorskip("schemathesis")
conformance = pytest.importorskip("schemathesis.specs.openapi.checks")

TOKEN = "a-token-of-some-length"
CHECKS = (
    schemathesis.checks.not_a_server_error,
    conformance.status_code_conformance,
    conformance.content_type_conformance,
    conformance.response_schema_conformance,
)
FAULTS = (500, 501, 502, 504)
"""503 says "not in time": on a busy machine that is an answer, with Retry-After."""


@pytest.fixture(scope="module")
def openapi(
    fastapi: None, gallery_folder: Path, tiny_model: Any, tmp_path_factory: pytest.TempPathFactory
) -> Any:
    from triptych.server.app import create_app
    from triptych.server.settings import ServerSettings

    own = Path(shutil.copytree(gallery_folder, tmp_path_factory.mktemp("openapi") / "gallery"))
    limits = ServerSettings(deadline=120, token=TOKEN, refresh=3600)
    return schemathesis.openapi.from_asgi("/openapi.json", create_app(own, limits, model=tiny_model))


def test_no_request_is_a_fault(openapi: Any) -> None:
    tried = 0
    for result in openapi.get_all_operations():
        operation = result.ok()

        @settings(
            max_examples=15,
            derandomize=True,
            deadline=None,
            database=None,
            phases=[Phase.explicit, Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        @given(case=operation.as_strategy())
        def check(case: Any) -> None:
            nonlocal tried
            tried += 1
            response = case.call(headers={"Authorization": f"Bearer {TOKEN}"})
            assert response.status_code not in FAULTS, response.text
            assert response.status_code < 500 or response.headers.get("retry-after")
            case.validate_response(response, checks=CHECKS)

        check()
    assert tried > 50
