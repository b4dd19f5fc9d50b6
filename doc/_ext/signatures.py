"""Signatures as the source has them: ``ArrayLike`` and ``NDArray``, not what they stand for."""

import re

from docutils import nodes
from numpy.typing import ArrayLike
from reference import refused
from sphinx import addnodes
from sphinx.util.inspect import signature as signature_of
from sphinx.util.inspect import stringify_signature
from sphinx.util.typing import stringify_annotation

_ARRAY_LIKE = stringify_annotation(ArrayLike, "smart")
_ARRAY = re.compile(
    r"(?:~?numpy\.)?ndarray\[tuple\[(?:~?typing\.)?Any, \.\.\.\], "
    r"(?:~?numpy\.)?dtype\[~?(?:\w+\.)?(\w+)(?:\[(?:~?typing\.)?Any\])?\]\]"
)


def _shortened(text):
    return _ARRAY.sub(r"NDArray[\1]", text.replace(_ARRAY_LIKE, "ArrayLike"))


def shorten(app, what, name, obj, options, signature, returned):
    """Shorten types, show what ``__init__`` takes, and leave out what is refused."""
    if what == "class" and signature == "(*args, **kwargs)":
        made_by = obj.__init__ if obj.__init__ is not object.__init__ else object
        found = signature_of(made_by, bound_method=made_by is not object)
        signature = stringify_signature(found, show_annotation=False)
    for entry in refused(name, obj):
        signature = re.sub(rf", {entry}\b[^,)]*", "", signature or "")
    return tuple(text and _shortened(text) for text in (signature, returned))


def tidy(app, doctree):
    """Shorten the types of properties, and keep one signature of a function with many methods."""
    for found in doctree.findall(addnodes.desc):
        first, *others = [node for node in found if isinstance(node, addnodes.desc_signature)]
        for other in others:
            found.remove(other)
        for note in first.findall(addnodes.desc_annotation):
            text = note.astext()
            if _shortened(text) != text:
                note.children = [nodes.Text(_shortened(text))]


def setup(app):
    app.connect("autodoc-process-signature", shorten)
    app.connect("doctree-read", tidy)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
