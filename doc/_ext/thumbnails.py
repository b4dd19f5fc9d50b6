"""Thumbnails of the gallery: headings, one panel of each picture, and an alternative text."""

import ast
import pathlib
import re

from docutils import nodes
from PIL import Image

# Where the panel is: left, top, right and bottom, as shares of the picture.
PANELS = {
    "balancing_functions": (0, 0, 0.44, 1),
    "decoder": (0, 0, 0.46, 1),
    "dreamt_digits": (0, 0.12, 0.40, 1),
    "first_fit": (0.635, 0, 0.945, 1),
    "image_segmentation": (0.04, 0.34, 0.35, 0.63),
    "ising_chain": (0.16, 0, 0.535, 0.45),
    "max_cut": (0.54, 0, 1, 1),
    "own_function": (0, 0, 1, 1),
    "potts": (0, 0.5, 0.47, 1),
    "rbm_digits": (0, 0.1, 0.412, 1),
    "spike_slab": (0, 0, 0.325, 1),
    "temperatures": (0, 0, 0.335, 1),
    "tempering": (0.665, 0, 1, 1),
    "tied_spins": (0, 0, 0.495, 1),
    "torch_energy": (0, 0, 0.40, 1),
    "variable_selection": (0, 0, 0.495, 1),
}

# The first example below each heading, in the order of the gallery.
HEADINGS = {
    "first_fit": "Images",
    "markov_network": "Networks",
    "variable_selection": "Regressions",
    "own_function": "Functions and cuts",
    "rbm_digits": "Boltzmann machines and torch",
    "tempering": "Modes and temperatures",
    "dreamt_digits": "Balancing functions",
}
_BREAK = """.. raw:: html

    </div>

{title}
{line}

.. raw:: html

    <div class="sphx-glr-thumbnails">

"""


def head(app, docname, source):
    """Put headings into the index of the gallery, whose sections would be folders otherwise."""
    del app
    for name, title in HEADINGS.items() if docname == "auto_examples/index" else ():
        before, at, _ = source[0].partition(f"/sphx_glr_plot_{name}_thumb")
        start = before.rindex(".. raw:: html") if at else len(before)
        text = _BREAK.format(title=title, line="-" * len(title))
        source[0] = source[0][:start] + (text if at else "") + source[0][start:]


def cut(app):
    """Make thumbnails of the panels; an example that was not run has no picture."""
    images = pathlib.Path(app.srcdir) / "auto_examples" / "images"
    for name, (left, top, right, bottom) in PANELS.items():
        path = images / f"sphx_glr_plot_{name}_001.png"
        if path.exists():
            image = Image.open(path)
            width, height = image.size
            panel = image.crop((left * width, top * height, right * width, bottom * height))
            panel.thumbnail((400, 280))
            panel.save(images / "thumb" / f"sphx_glr_plot_{name}_thumb.png")


def describe(app, doctree):
    """Name each thumbnail by the title of its example."""
    for image in doctree.findall(nodes.image):
        found = re.search(r"sphx_glr_(\w+)_thumb\.", image["uri"])
        if found and not image.get("alt"):
            path = pathlib.Path(app.srcdir).parent / "examples" / f"{found[1]}.py"
            words = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))
            image["alt"] = "Picture of the example: " + words.splitlines()[0]


def setup(app):
    app.connect("builder-inited", cut, priority=600)  # after sphinx-gallery has run
    app.connect("source-read", head)
    app.connect("doctree-read", describe)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
