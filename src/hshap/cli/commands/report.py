"""`hshap report`: which share of the score objects, background and shortcuts carry."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hshap._util.visible import as_text
from hshap.cli.faults import Code, Refusal
from hshap.cli.inputs.annotated_runs import check_categories, explained_with, objects_of, union_of
from hshap.cli.options import AsJson
from hshap.cli.output import print_csv, print_json, say, table, tell
from hshap.cli.progress import Shown
from hshap.explanation.guarantees.carriers import carriers

if TYPE_CHECKING:
    from hshap._util.types import Json, Mask
    from hshap.cli.inputs.annotated_runs import Explained
    from hshap.explanation.guarantees.carriers import Carriers


def report(  # noqa: PLR0913, one for each option
    run: Annotated[str, typer.Argument(help="Run folder, or a folder that explain wrote.")],
    *,
    truth: Annotated[Path, typer.Option("--truth", help="Annotated objects, as a COCO file.")],
    target: Annotated[
        str | None, typer.Option("--target", "-t", help="Class, if several are explained.")
    ] = None,
    mark: Annotated[
        list[str] | None,
        typer.Option("--mark", help="Category that should not matter, such as text; repeatable."),
    ] = None,
    margin: Annotated[int, typer.Option(min=0, help="Pixels by which objects are grown.")] = 0,
    worst: Annotated[int, typer.Option(min=0, help="Images to list, the worst first.")] = 10,
    strict: Annotated[
        bool, typer.Option("--strict", help="Exit with code 8 if a mark is suspicious.")
    ] = False,
    json: AsJson = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print a row for each image.")] = False,
) -> None:
    """Measure the share of the score on objects, background and marks.

    No model runs.
    """
    found, categories = explained_with(run, truth, target)
    marks = mark or []
    check_categories(categories, marks, "--mark")
    if set(categories) <= set(marks):
        message = (
            f"--mark names every category of {truth}, and the report is about images with objects; "
            "annotate the objects too"
        )
        raise Refusal(Code.USAGE, message)
    objects = objects_of(found, [name for name in categories if name not in marks])
    with Shown("measuring shares of the score"):
        made = carriers(
            {
                one.image: (one.explanation, union_of(own, one.annotated.shape))
                for one, own in zip(found, objects, strict=True)
            },
            marks={name: {one.image: _marked(one, name) for one in found} for name in marks},
            margin=margin,
        )
    if json:
        print_json(_document(made))
    elif as_csv:
        names = list(made.means)
        rows = [[as_text(r.image), *(r.shares[n] for n in names), r.doubt] for r in made.images]
        print_csv([["image", *names, "doubt"], *rows])
    else:
        _print(made, worst)
    if made.clean:
        say(f"images without objects are left out: {len(made.clean)}")
    if made.empty:
        say(f"images with objects and without findings are left out: {len(made.empty)}")
    if strict and made.suspicious:
        raise typer.Exit(Code.CONCERN)


def _marked(one: Explained, name: str) -> Mask:
    return union_of(one.annotated.masks([name]), one.annotated.shape)


def _print(made: Carriers, worst: int) -> None:
    names = list(made.means)
    rows = [
        (
            name,
            f"{mean.value:.1%}",
            f"{mean.low:.1%} to {mean.high:.1%}",
            f"{made.area(name):.1%}",
            str(len(made.having(name))),
        )
        for name, mean in made.means.items()
    ]
    table(("carrier", "share of the score", "95 % interval", "share of the area", "images"), rows)
    if worst and made.images:
        shown = [
            (as_text(row.image), *(f"{row.shares[name]:.1%}" for name in names), f"{row.doubt:.2f}")
            for row in made.images[:worst]
        ]
        table(("worst images", *names, "doubt"), shown)
    tell(f"{len(made.images)} images with objects and findings: {made.verdict}")


def _document(made: Carriers) -> dict[str, Json]:
    return {
        "images": len(made.images),
        "without_findings": [as_text(name) for name in made.empty],
        "without_objects": [as_text(name) for name in made.clean],
        "means": {
            name: {**mean._asdict(), "images": len(made.having(name))}
            for name, mean in made.means.items()
        },
        "suspicious": list(made.suspicious),
        "verdict": made.verdict,
        "worst_first": [
            {"image": as_text(row.image), "shares": dict(row.shares), "doubt": row.doubt}
            for row in made.images
        ],
    }
