"""How the site is built: `scripts/docs`, or `python -m sphinx -W -n docs docs/_build/html`."""

from __future__ import annotations

import inspect
import logging
import multiprocessing.util
import os
import time
import traceback
import warnings
from html import escape
from pathlib import Path
from typing import Any

import myst_nb.core.execute.direct
from docutils import nodes
from docutils.utils.math import latex2mathml
from jupyter_cache.executors.utils import ExecutionResult
from jupyter_client.manager import KernelManager
from nbclient import execute
from nbclient.exceptions import CellExecutionError, CellTimeoutError
from nbformat.v4 import new_code_cell, new_notebook

import hshap
from hshap._util.version import __version__

HERE = Path(__file__).parent
CHAPTERS = [name for name in hshap.__all__ if inspect.ismodule(getattr(hshap, name))]

project = "hshap"
author = "The hshap developers"
copyright = "the hshap developers"  # noqa: A001, Sphinx names it so
version = release = __version__

extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.autosummary"]
exclude_patterns = ["_build", "decisions/README.md"]
templates_path: list[str] = []
root_doc = "index"

# Pages
html_theme = "furo"
html_title = f"hshap {release}"
html_static_path = ["_static"]
html_css_files = ["hshap.css"]
html_copy_source = False
html_show_sphinx = False
# Browsers let no page read another one from a file, so results are shown without extracts.
html_show_search_summary = False

# Markdown; examples are run at each build, and one that fails fails the build.
myst_enable_extensions = ["colon_fence", "dollarmath", "amsmath", "substitution"]
myst_heading_anchors = 3
nb_execution_mode = "force"
nb_execution_timeout = 300
nb_execution_raise_on_error = True
nb_merge_streams = True
SCREENSHOT = HERE / "images" / "page.png"
myst_substitutions = {
    "screenshot": (
        "![The page of an explanation: sliders, the image and its findings](images/page.png)"
        if SCREENSHOT.exists()
        else ""
    )
}

# The reference
default_role = "code"  # docstrings quote code with single backticks
autosummary_generate = False
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 80
nitpicky = True
# Names of other libraries, and short names for types that are explained in words.
nitpick_ignore_regex = [
    (
        "py:.*",
        r"(np|numpy|NDArray|ArrayLike|Axes|Colormap|Figure|FigureBase|os|collections|typing|pathlib)\b.*",
    ),
    (
        "py:.*",
        r"(Any|Callable|Iterable|Iterator|Literal|Mapping(\[str)?|Sequence|Collection|Path|PathLike|T|int|str)",
    ),
    (
        "py:.*",
        r"(hshap\.)?(\w+\.)*(Steps|Sampler|Fill|Target|Rule|SplitRule|RunEnded|Pair|Put|ArrayFunction|MinSize|Budget|StandIns|Findings|Objects|Smooth|Files|Executor|Decode|Leaf|LargePicture|Result|Folder|Shard|Key|ErrorRate|Loss|Facts|Wanted|Prepared|Method|Layout|Function|Scores|SentenceScores|Interpolation|Range)",
    ),
    # The aliases of reference/types.md.
    (
        "py:.*",
        r"(Grid|Shape|Position|tuple\[Position|Spacing|Corners|Image|Heat|Mask|Ints|Tensor|Model|Untyped|ScoreFunction|Json|JsonObject)",
    ),
    (
        "py:.*",
        r"(hshap\.)?(\w+\.)*(Adaptive|Index|Coalition|Context|InContext|OnProgress|OnError|Score|Hit|Measure|Array|MergeTree|Labels|Part|Pictured|Unit|\w+Session)",
    ),
]

# Libraries that the kernels of the examples rest on warn about themselves, not about us.
warnings.filterwarnings("ignore", category=DeprecationWarning)
logging.getLogger("traitlets").setLevel(logging.ERROR)


# One kernel runs the examples of all pages, one after another: starting one for each page, with
# torch and matplotlib, takes most of the time of a build. Names of a page are forgotten before the
# next one. Forgetting collects garbage, in which imported libraries need not be looked at again.
KERNELS: dict[int, KernelManager] = {}
BETWEEN_PAGES = """%reset -f
import gc, os, warnings, matplotlib.pyplot
gc.freeze()
os.chdir({folder!r})
warnings.resetwarnings()
matplotlib.pyplot.close("all")
matplotlib.rcdefaults()
del gc, os, warnings, matplotlib
%matplotlib inline
"""


def _kernel() -> KernelManager:
    """Return the kernel of this process; it ends with the process."""
    found = KERNELS.get(os.getpid())
    if found is None:
        found = KERNELS[os.getpid()] = KernelManager(kernel_name="python3")
        found.start_kernel()
        multiprocessing.util.Finalize(
            None, found.shutdown_kernel, kwargs={"now": True}, exitpriority=10
        )
    return found


def _run_page(nb: Any, cwd: str, timeout: int, allow_errors: bool, **_: Any) -> ExecutionResult:  # noqa: FBT001
    """Run the examples of a page in the kernel that all pages share."""
    kernel, started, error, text = _kernel(), time.perf_counter(), None, None
    fresh = new_notebook(cells=[new_code_cell(BETWEEN_PAGES.format(folder=cwd))])
    try:
        execute(fresh, km=kernel, timeout=timeout)
        execute(nb, km=kernel, timeout=timeout, allow_errors=allow_errors)
    except (CellExecutionError, CellTimeoutError) as caught:
        error, text = caught, traceback.format_exc()
    return ExecutionResult(nb, cwd, time.perf_counter() - started, error, text)


myst_nb.core.execute.direct.single_nb_execution = _run_page


def setup(app: Any) -> None:
    """Write formulas as MathML, which browsers draw by themselves: no script from elsewhere."""
    app.add_html_math_renderer("mathml", (_inline, None), (_block, None))
    app.config.html_math_renderer = "mathml"
    app.connect("missing-reference", _by_public_name)


def _by_public_name(app: Any, env: Any, node: Any, content: Any) -> Any:
    """Link `hshap.explanation.explanation.Explanation` to the name that users know."""
    module, _, name = str(node.get("reftarget", "")).rpartition(".")
    if node.get("refdomain") != "py":
        return None
    domain, place = env.domains.python_domain, node["refdoc"]
    for chapter in ("hshap", *(f"hshap.{name}" for name in CHAPTERS)):
        target = f"{chapter}.{name}"
        if chapter != module and target in domain.objects:
            return domain.resolve_xref(env, place, app.builder, "obj", target, node, content)
    return None


def _inline(writer: Any, node: nodes.math) -> None:
    writer.body.append(latex2mathml.tex2mathml(node.astext()))
    raise nodes.SkipNode


def _block(writer: Any, node: nodes.math_block) -> None:
    label = f' id="{escape(node["ids"][0])}"' if node["ids"] else ""
    formula = latex2mathml.tex2mathml(node.astext(), as_block=True)
    writer.body.append(f'<div class="math"{label}>{formula}</div>\n')
    raise nodes.SkipNode
