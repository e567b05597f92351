from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from coldsnap.artifact.capabilities import describe_capabilities
from coldsnap.artifact.pack import write_pack
from coldsnap.artifact.request import resolve_request
from coldsnap.sdk.schemas import DOCUMENTS, schemas

REQUEST = {
    "operation": "capture",
    "id": "op",
    "snapshot_driver": {"id": "criu"},
    "output": "x",
    "launch": {
        "engine": "reference",
        "model": {"id": "tiny"},
        "units": [{"id": "u0", "index": 0}],
    },
}


def valid(name: str, folder: Path) -> dict[str, Any]:
    if name == "pack-index.schema.json":
        pack = write_pack(folder, [("a", 1, b"a")])
        index: dict[str, Any] = json.loads(pack.index.read_bytes())
        return index
    if name == "request.schema.json":
        return resolve_request(REQUEST).to_json()
    return describe_capabilities([]).to_json()


@pytest.mark.parametrize("name", sorted(DOCUMENTS))
def test_every_schema_is_one_and_refuses_unknown_fields(name: str) -> None:
    schema = schemas()[name]
    jsonschema.Draft202012Validator.check_schema(schema)
    assert schema["title"] == DOCUMENTS[name][1]
    assert schema["additionalProperties"] is False
    assert json.dumps(schema) == json.dumps(schemas()[name])


@pytest.mark.parametrize(
    "name", ["pack-index.schema.json", "request.schema.json", "capabilities.schema.json"]
)
def test_what_we_write_fits_its_schema(name: str, tmp_path: Path) -> None:
    validator = jsonschema.Draft202012Validator(schemas()[name])
    document = valid(name, tmp_path)
    assert list(validator.iter_errors(document)) == []
    for change in ({"surprise": 1}, {"format": 99}):
        assert list(validator.iter_errors(copy.deepcopy(document) | change))


def test_bounds_and_patterns_are_in_the_schemas() -> None:
    index = schemas()["pack-index.schema.json"]
    extent = index["$defs"]["Extent"]["properties"]
    assert extent["sha256"]["pattern"] == "^(?:sha256:[0-9a-f]{64})$"
    assert extent["offset"]["minimum"] == 0
    assert index["properties"]["extents"]["maxItems"] == 200_000
    assert "Semantic id" in extent["id"]["description"]
