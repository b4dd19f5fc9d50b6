"""Alternative texts of the gallery's thumbnails: sphinx-gallery leaves them empty."""

import ast
import pathlib
import re

from docutils import nodes


def describe(app, doctree):
    """Name each thumbnail by the title of its example."""
    for image in doctree.findall(nodes.image):
        found = re.search(r"sphx_glr_(\w+)_thumb\.", image["uri"])
        if found and not image.get("alt"):
            path = pathlib.Path(app.srcdir).parent / "examples" / f"{found[1]}.py"
            words = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))
            image["alt"] = "Picture of the example: " + words.splitlines()[0]


def setup(app):
    app.connect("doctree-read", describe)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
