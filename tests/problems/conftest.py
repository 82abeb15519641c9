from __future__ import annotations

import json

import pytest


@pytest.fixture
def write(tmp_path):
    """`write(name, content)`: text is written as UTF-8, a list as one JSON object a line."""

    def put(name, content):
        path = tmp_path / name
        if isinstance(content, list):
            content = "".join(json.dumps(row) + "\n" for row in content)
        path.write_bytes(content if isinstance(content, bytes) else content.encode("utf-8", "surrogatepass"))
        return path

    return put
