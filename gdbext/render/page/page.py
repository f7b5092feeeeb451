"""The page as a whole: the document, its pictures, the style and the script, all in one file."""

from __future__ import annotations

import base64
import hashlib
from dataclasses import dataclass
from importlib.resources import files
from shlex import quote
from typing import Any, Dict, Mapping, Optional

from gdbext.errors import MissingDependencyError
from gdbext.render.page import growth, sections, texts
from gdbext.render.page.document import MADE, Redactor, embedded, make_document
from gdbext.render.page.mapdrawing import picture
from gdbext.render.plain import plain
from gdbext.report import Kind, Report
from gdbext.target import Target

_PACKAGE = "gdbext.render.page"


@dataclass(frozen=True)
class How:
    """How a page is to be.

    :param redact: whether it shows no text of the target.
    :param contents: whether it shows what blocks look like inside.
    :param rows: of each list at most.
    """

    redact: bool = False
    contents: bool = False
    rows: int = 200


def page(report: Report, target: Optional[Target], how: How = How()) -> str:
    """Return the page about a report whose data is an ``Overview``.

    :raises MissingDependencyError: Jinja2 is not installed.
    """
    document = make_document(report, target, how.rows)
    if not how.contents:
        _drop_contents(document["data"])
    if how.redact:
        document = Redactor().redacted(document)
    return page_of(document)


def page_of(document: Mapping[str, Any]) -> str:
    """Return the page about a document; it shows nothing that is not in it."""
    return rendered("page.html", document, pictures=_pictures(document["data"]), growth=growth, sections=sections)


def rendered(template: str, document: Mapping[str, Any], **more: Any) -> str:
    """Return the page that a template makes of a document, with the style and the script that all pages have.

    :param more: what else the template names.
    :raises MissingDependencyError: as :func:`page`.
    """
    style, script = (files(_PACKAGE).joinpath(name).read_text("utf-8") for name in ("page.css", "page.js"))
    environment = _environment()
    safe = environment.filters["safe"]
    return str(
        environment.get_template(template).render(
            document=document,
            data=document["data"],
            style=safe(style),
            script=safe(script),
            policy=_policy(style, script),
            json=safe(embedded(document)),
            made=MADE,
            **more,
        )
    )


def map_svg(report: Report) -> str:
    """Return the picture of a report whose data is an ``AddressMap``, as a file by itself.

    :raises MissingDependencyError: as :func:`page`.
    """
    drawn = picture(plain(report.data, Kind.OBJECT))
    return str(_environment().get_template("map.svg").render(drawn=drawn))


def _policy(style: str, script: str) -> str:
    """Return the page's Content-Security-Policy: these two by their hashes, and nothing else, from nowhere."""
    allowed = f"script-src {_hash(script)}; style-src {_hash(style)}"
    return f"default-src 'none'; {allowed}; base-uri 'none'; form-action 'none'"


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _drop_contents(data: Mapping[str, Any]) -> None:
    for row in (data["leaks"] or {}).get("leak_roots", ()):
        row["contents"] = None


def _pictures(data: Mapping[str, Any]) -> Mapping[str, Any]:
    summary: Mapping[str, Any] = data["summary"] or {"arenas": [], "by_power": []}
    arenas = sections.largest_arenas(summary["arenas"])
    nodes = sections.icicle(data["retained_tree"])
    made: Dict[str, Any] = {
        "treemap": sections.treemap(data["shares"]),
        "icicle": nodes,
        "icicle_height": sections.depth_of(nodes),
        "histogram": sections.histogram(summary["by_power"], 926, 200),
        "arenas": arenas,
        "arena_bars": sections.stacked(arenas, max(map(sections.total, arenas), default=0)),
        "waits": sections.waits(data["locks"]),
        "lengths": [sections.chain_lengths(table["answer"], 926, 160) for table in data["tables"]],
    }
    made["growth"] = growth.charts(data["growth"]) if data["growth"] else ()
    maps = {name: picture(data[name]) for name in ("address_space", "heap_map") if data[name]}
    return {**made, "maps": maps}


def _environment() -> Any:
    try:
        import jinja2
    except ImportError:
        raise MissingDependencyError("Jinja2 is not installed", "pip install 'gdbext[report]'") from None
    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(lambda name: files(_PACKAGE).joinpath(name).read_text("utf-8")),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.filters.update(
        text=texts.text, size=texts.size, count=texts.count, share=texts.share, when=texts.when, span=texts.span,
        shell=quote,
    )  # fmt: skip
    return environment
