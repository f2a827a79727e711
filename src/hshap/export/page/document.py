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
    from collections.abc import Iterable, Sequence

    from hshap._util.types import Json

SCRIPTS = (
    "basics.js",
    "data.js",
    "places.js",
    "findings.js",
    "colours.js",
    "image.js",
    "camera.js",
    "overlay.js",
    "state.js",
    "review.js",
    "words.js",
    "viewer.js",
    "gallery.js",
    "controls.js",
)
"""Chapters of one script: they share a scope, so that the page needs no modules and no bundler."""

POLICY = (
    "default-src 'none'; script-src '{script}'{beside}; style-src '{style}'; img-src data: blob:; "
    "base-uri 'none'; form-action 'none'"
)
"""The page may run its own script and style; it may load nothing from elsewhere."""

BESIDE = " 'self' file:"
"""Sources of scripts for a page with files beside it, which hold its data."""

ESCAPES = {ord(sign): f"\\u{ord(sign):04x}" for sign in "<>&\u2028\u2029"}

Part = tuple[str, str]
"""A piece of the page's data: its name, and a text that is JSON or base64."""


def assemble(
    entries: Sequence[Json], title: str, parts: Iterable[Part], folder: str | None = None
) -> str:
    """Return the whole document; the parts of a page with a folder are files in it."""
    script = '(() => {\n"use strict";\n' + "\n".join(map(_asset, SCRIPTS)) + "\n})();\n"
    style = _asset("page.css")
    data = {"title": title, "version": __version__, "folder": folder, "views": entries}
    fields = {
        "policy": POLICY.format(
            script=_digest(script), style=_digest(style), beside=BESIDE if folder else ""
        ),
        "title": html.escape(visible(title)),
        "style": style,
        "script": script,
        # A name that turns the direction of text would turn the numbers behind it, too.
        "data": as_json(_visible(cast("Json", data))),
        "blocks": "\n".join(
            f'<script type="text/plain" id="{name}">{text}</script>' for name, text in parts
        ),
    }
    # In one pass: braces inside a field are never replaced.
    return re.sub(r"\{\{(\w+)\}\}", lambda match: fields[match[1]], _asset("page.html"))


def as_script(parts: Iterable[Part]) -> str:
    """Return parts as a script beside the page, which hands them over when it is loaded."""
    return "".join(f"hshapPart({as_json(name)}, {as_json(text)});\n" for name, text in parts)


def as_json(data: Json) -> str:
    r"""Return JSON that is safe inside a script element, whatever its strings are.

    >>> as_json({"name": "</script>"})
    '{"name":"\\u003c/script\\u003e"}'
    """
    return json.dumps(data, separators=(",", ":"), allow_nan=False).translate(ESCAPES)


def as_table(data: Mapping[str, Json]) -> str:
    """Return the JSON of a table in which control characters of all texts are spelled out."""
    return as_json(_visible(data))


def as_base64(data: bytes) -> str:
    """Return bytes as text."""
    return base64.b64encode(data).decode()


def _visible(data: Json) -> Json:
    """Return data in which control characters of all texts are spelled out."""
    if isinstance(data, str):
        return visible(data)
    if isinstance(data, Mapping):
        return {name: _visible(value) for name, value in data.items()}
    if isinstance(data, (list, tuple)):
        # Long lists of numbers hold no text.
        return [_visible(one) if isinstance(one, (str, Mapping, list)) else one for one in data]
    return data


def _asset(name: str) -> str:
    return files("hshap.export.page").joinpath("assets", name).read_text(encoding="utf-8")


def _digest(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
