"""Vector files: JSON; byte strings are lower-case hexadecimal, but signatures, being long, base64."""

import base64
import json
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent
Vector = dict[str, Any]


def valid(name: str, comment: str, /, **fields: Any) -> Vector:
    return {"id": name, "comment": comment, "result": "valid", **fields}


def invalid(name: str, comment: str, error: str, /, **fields: Any) -> Vector:
    return {"id": name, "comment": comment, "result": "invalid", "error": error, **fields}


def store(name: str, about: str, vectors: list[Vector], **given: Any) -> None:
    names = [vector["id"] for vector in vectors]
    if len(set(names)) != len(names):
        raise ValueError(f"Two vectors of {name} have one id.")
    content = {"about": about, **({"given": given} if given else {}), "vectors": vectors}
    rewrite(name, _shown(content))


def rewrite(name: str, content: dict[str, Any]) -> None:
    text = json.dumps(content, indent=1, ensure_ascii=False)
    (FOLDER / f"{name}.json").write_text(text + "\n", encoding="utf-8")


def load(name: str) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))
    return content


def vectors(name: str, result: str | None = None) -> list[Vector]:
    found: list[Vector] = load(name)["vectors"]
    return [vector for vector in found if result in (None, vector["result"])]


def signature_of(item: Vector) -> bytes:
    return base64.b64decode(item["signature"], validate=True)


def _shown(value: Any, name: str = "") -> Any:
    if isinstance(value, (bytes, memoryview)):
        return base64.b64encode(value).decode() if name == "signature" else value.hex()
    if isinstance(value, dict):
        return {key: _shown(item, key) for key, item in value.items()}
    if isinstance(value, list):
        return [_shown(item) for item in value]
    return value
