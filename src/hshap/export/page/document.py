"""The HTML document: assets and data in one text; nothing in the data can become markup."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from collections.abc import Mapping
from importlib.resources import files
from typing import TYPE_CHECKING, cast

from hshap._util.version import __version__
from hshap._util.visible import visible

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hshap._util.types import Json
    from hshap.export.page.tables import Drawn

SCRIPTS = (
    "dom.js",
    "findings.js",
    "colours.js",
    "picture.js",
    "stage.js",
    "sidebar.js",
    "gallery.js",
    "exports.js",
    "state.js",
    "words.js",
    "actions.js",
    "controls.js",
    "scripting.js",
)
"""They share one scope, in this order."""

POLICY = (
    "default-src 'none'; script-src '{script}'; style-src '{style}'; img-src data: blob:; "
    "base-uri 'none'; form-action 'none'"
)
"""The page may run its own script and style; it may load nothing from elsewhere."""

ESCAPES = {ord(sign): f"\\u{ord(sign):04x}" for sign in "<>&\u2028\u2029"}


def assemble(views: Sequence[Drawn], title: str) -> str:
    """Return the whole document."""
    script = '(() => {\n"use strict";\n' + "\n".join(map(_asset, SCRIPTS)) + "\n})();\n"
    style = _asset("page.css")
    tables = [view.table for view in views]
    data = {"title": title, "version": __version__, "views": tables}
    # A name that turns the direction of text would turn the numbers behind it, too.
    shown = _visible(cast("Json", data))
    blocks = [_block(f"runs-{i}", view.runs) for i, view in enumerate(views)]
    blocks += [_block(f"image-{i}", view.image) for i, view in enumerate(views)]
    fields = {
        "policy": POLICY.format(script=_digest(script), style=_digest(style)),
        "title": html.escape(visible(title)),
        "style": style,
        "script": script,
        "data": as_json(shown),
        "blocks": "\n".join(blocks),
    }
    # In one pass: braces inside a field are never replaced.
    return re.sub(r"\{\{(\w+)\}\}", lambda match: fields[match[1]], _asset("page.html"))


def as_json(data: Json) -> str:
    r"""Return JSON that is safe inside a script element, whatever its strings are.

    >>> as_json({"name": "</script>"})
    '{"name":"\\u003c/script\\u003e"}'
    """
    return json.dumps(data, separators=(",", ":"), allow_nan=False).translate(ESCAPES)


def _visible(data: Json) -> Json:
    """Return data in which control characters of all texts are spelled out."""
    if isinstance(data, str):
        return visible(data)
    if isinstance(data, Mapping):
        return {name: _visible(value) for name, value in data.items()}
    return [_visible(item) for item in data] if isinstance(data, (list, tuple)) else data


def _block(name: str, data: bytes) -> str:
    text = base64.b64encode(data).decode()
    return f'<script type="text/plain" id="{name}">{text}</script>'


def _asset(name: str) -> str:
    return files("hshap.export.page").joinpath("assets", name).read_text(encoding="utf-8")


def _digest(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
