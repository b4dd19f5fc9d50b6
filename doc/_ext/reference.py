"""Pages of the reference: entries described elsewhere are copied, methods listed, pages linked."""

import functools
import importlib
import inspect
import pathlib
import re

import sklsb

_ELSEWHERE = re.compile(r"    As in `([\w.]+)`(\.|, by column\.)")
_PAGE = re.compile(r'([Pp]ages?) "([^"]+)"')
_FIELD = re.compile(r":\w+:(?!`)")  # not a formula at the beginning of a line
_FIRST = ("fit", "sample", "predict", "predict_proba", "summary")


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


def complete(app, what, name, obj, options, lines):
    """Copy what is described elsewhere, and link pages that are named."""
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


def tabulate(app, what, name, obj, options, lines):
    """List the methods of a class between its description and its parameters."""
    if what != "class" or name.count(".") > 1:  # only classes that have a page of their own
        return
    hidden = {*app.config.autodoc_default_options["exclude-members"].split(", "), "get_params"}
    if obj is not sklsb.Target:
        hidden |= {*sklsb.Target._for_authors}
    found = [
        method
        for cls in obj.__mro__
        if cls.__module__.startswith("sklsb.")
        for method, value in vars(cls).items()
        if not method.startswith("_")
        and not isinstance(value, property | functools.cached_property)
        if callable(getattr(obj, method)) and inspect.getdoc(value)
    ]
    names = [method for method in dict.fromkeys([*_FIRST, *found]) if method in {*found} - hidden]
    if len(names) > 1:
        where = next((i for i, line in enumerate(lines) if _FIELD.match(line)), len(lines))
        rows = [f"   ~{obj.__name__}.{method}" for method in names]
        table = [".. rubric:: Methods", "", ".. autosummary::", "   :nosignatures:", "", *rows, ""]
        lines[where:where] = table


def setup(app):
    app.connect("autodoc-process-docstring", complete, priority=400)  # before numpydoc
    app.connect("autodoc-process-docstring", tabulate, priority=600)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
