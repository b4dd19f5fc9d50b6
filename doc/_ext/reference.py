"""Pages of the reference: entries described elsewhere are copied, methods listed, pages linked."""

import functools
import importlib
import inspect
import pathlib
import re

from docutils import nodes
from sphinx import addnodes

import sklsb

_ELSEWHERE = re.compile(r"    As in `([\w.]+)`(\.|, by column\.)")
_PAGE = re.compile(r'([Pp]ages?) "([^"]+)"')
_FIELD = re.compile(r":\w+:(?!`)")  # not a formula at the beginning of a line
# Methods in the order in which people use them, behind what makes a target; and what few need.
_FIRST = (
    *(
        "lattice",
        "from_tables",
        "fit",
        "sample",
        "predict",
        "predict_proba",
        "summary",
        "with_nuts",
    ),
    *("condition", "log_prob", "plot", "table", "replace", "with_factors"),
)
_LAST = (
    *("label", "log_ratios", "first_order_ratios", "graph", "log_factors", "log_g", "even_part"),
    *("check_even", "knots", "tabulated", "setup_chain", "learned", "competence"),
)
_SEEN = {}  # classes that autodoc has described, some with mocked modules
_FOR_AUTHORS = "For authors of targets"
_AUTHORS = {*sklsb.Target._for_authors, "check_evidence", "check_states"}


@functools.cache
def pages(folder):
    """Return the page of each title."""
    found = {}
    for page in pathlib.Path(folder).glob("*.rst"):
        title = re.search(r"^(.+)\n=+$", page.read_text(encoding="utf-8"), re.MULTILINE)
        if title:
            found[title[1]] = page.stem
    return found


def entries(text):
    """Return the lines of each entry of the sections of a docstring, by name."""
    found, names = {}, []
    for line in text.splitlines():
        if line and not line.startswith(" "):
            head, colon, kind = line.partition(" : ")
            names = head.split(", ")
            found.update({name: [name + colon + kind] for name in names})
        else:
            for name in names:
                found[name].append(line)
    return {name: "\n".join(lines).rstrip().split("\n") for name, lines in found.items()}


def described(obj, called):
    """Return the entries of the docstring that another one refers to."""
    module = importlib.import_module(getattr(obj, "__module__", None) or "sklsb")
    cls = getattr(module, getattr(obj, "__qualname__", "").partition(".")[0], None)
    for room in (sklsb, sklsb.exact, cls, module):
        found = getattr(room, called.removeprefix("sklsb.exact."), None)
        if found is not None and found is not obj:
            return entries(inspect.getdoc(found))
    return {}


def refused(name, obj):
    """Return the entries of a method's docstring that its class refuses, by the entry's words."""
    words = f"`{name.split('.')[-2]}` refuses it."
    found = entries(inspect.getdoc(obj) or "") if name.count(".") > 1 else {}
    return {entry: text for entry, text in found.items() if words in "\n".join(text)}


def complete(app, what, name, obj, options, lines):
    """Copy what is described elsewhere, leave out what is refused, link pages that are named."""
    for text in refused(name, obj).values():
        if text[0] not in lines:
            raise ValueError(f"{name} is refused {text[0]!r}, which is not among its lines")
        start = lines.index(text[0])
        del lines[start : start + len(text)]
    made = []
    for line in lines:
        match = _ELSEWHERE.fullmatch(line)
        if match and made:
            known, head = described(obj, match[1]), made.pop()
            names = head.partition(" : ")[0].split(", ")
            for entry in filter(known.get, names):
                made += known[entry]
            left = [entry for entry in names if entry not in known]
            if left:
                made += [head if left == names else ", ".join(left), line]
        else:
            made.append(line)
    titles = pages(app.srcdir)

    def link(match):
        page = titles.get(match[2])
        return f"{match[1]} :doc:`/{page}`" if page else match[0]

    lines[:] = [_PAGE.sub(link, line) for line in made]


@functools.cache
def members(cls):
    """Return the members of a class and their definitions, as people look for them."""
    found = {}
    for base in cls.__mro__ if cls.__module__.startswith("sklsb.") else ():
        if base.__module__.startswith("sklsb."):
            found = {**found, **{k: v for k, v in vars(base).items() if k not in found}}

    def place(name):
        first = _FIRST.index(name) if name in _FIRST else len(_FIRST)
        makes = issubclass(cls, sklsb.Target) and isinstance(found[name], classmethod)
        no_call = not callable(getattr(cls, name)) or is_property(found[name])
        return is_for_authors(cls, name), name in _LAST, no_call, not makes, first

    return {name: found[name] for name in sorted(found, key=place)}


def is_property(value):
    return isinstance(value, property | functools.cached_property)


def is_for_authors(cls, name):
    return issubclass(cls, sklsb.Target) and name in _AUTHORS


def tabulate(app, what, name, obj, options, lines):
    """List the methods of a class between its description and its parameters."""
    if what == "class":
        _SEEN[name] = obj
    if what != "class" or name.count(".") > 1:  # only classes that have a page of their own
        return
    hidden = {*app.config.autodoc_default_options["exclude-members"].split(", "), "get_params"}
    names = [
        method
        for method, value in members(obj).items()
        if method[0] != "_" and method not in hidden and not is_property(value)
        if callable(getattr(obj, method)) and inspect.getdoc(value)
    ]
    if len(names) > 1:
        written = [method for method in names if is_for_authors(obj, method)]
        tables = {"Methods": [method for method in names if method not in written]}
        if obj is sklsb.Target:
            tables[_FOR_AUTHORS] = written
        where = next((i for i, line in enumerate(lines) if _FIELD.match(line)), len(lines))
        for title, methods in reversed(tables.items()):
            rows = [f"   ~{obj.__name__}.{method}" for method in methods]
            head = [f".. rubric:: {title}", "", ".. autosummary::", "   :nosignatures:", ""]
            lines[where:where] = [*head, *rows, ""]


def skip(app, what, name, obj, skips, options):
    """Leave what authors of targets need to the page of their base class."""
    cls = getattr(sklsb, app.env.docname.removeprefix("generated/sklsb."), None)
    if cls is not sklsb.Target and inspect.isclass(cls) and is_for_authors(cls, name):
        return True
    return None


def order(app, doctree):
    """Put the members of a class in order."""
    for node in doctree.findall(addnodes.desc):
        cls = _SEEN.get(f"{node[0].get('module')}.{node[0].get('fullname')}")
        if cls is None or not cls.__module__.startswith("sklsb"):
            continue
        content, known = node[-1], [*members(cls)]
        found = {
            n[0]["fullname"].rpartition(".")[2]: (content[content.index(n) - 1], n)
            for n in content
            if isinstance(n, addnodes.desc)
        }
        for pair in found.values():
            for part in pair:  # an entry of the index, and what it leads to
                content.remove(part)
        marked = False
        for name in sorted(found, key=lambda name: known.index(name) if name in known else -1):
            if is_for_authors(cls, name) and not marked:
                content += nodes.rubric("", _FOR_AUTHORS)
                marked = True
            content += found[name]


def at_top_level(app, env, node, contnode):
    """Look a name up in `sklsb` that is not in the module of the text."""
    if node.get("reftype") == "obj":
        domain, name = env.domains["py"], f"sklsb.{node['reftarget']}"
        return domain.resolve_xref(env, node["refdoc"], app.builder, "obj", name, node, contnode)


def setup(app):
    app.connect("missing-reference", at_top_level)
    app.connect("autodoc-process-docstring", complete, priority=400)  # before numpydoc
    app.connect("autodoc-process-docstring", tabulate, priority=600)
    app.connect("autodoc-skip-member", skip)
    app.connect("doctree-read", order, priority=400)  # before the contents of the page
    return {"parallel_read_safe": True, "parallel_write_safe": True}
