"""Sphinx configuration."""

import importlib.metadata
import importlib.util

project = "sklsb"
author = "the sklsb developers"
copyright = "2026, the sklsb developers"
release = version = importlib.metadata.version("sklsb")

extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.mathjax",
    "matplotlib.sphinxext.plot_directive",
    "numpydoc",
    "sphinx_gallery.gen_gallery",
]
exclude_patterns = ["_build", "**/GALLERY_HEADER.rst"]
templates_path = ["_templates"]
default_role = None

autosummary_generate = True
autosummary_ignore_module_all = False
# scikit-learn documents its own methods, of which two refer to pages of its manual; and Python
# those of tuples.
autodoc_default_options = {
    "members": True,
    "inherited-members": "BaseEstimator",
    "exclude-members": "get_metadata_routing, set_fit_request, count, index",
    "member-order": "bysource",
}
numpydoc_show_class_members = False

has_torch = importlib.util.find_spec("torch") is not None
plot_html_show_formats = False
plot_html_show_source_link = False
plot_formats = ["svg"]

sphinx_gallery_conf = {
    "examples_dirs": "../examples",
    "gallery_dirs": "auto_examples",
    "backreferences_dir": None,
    "abort_on_example_error": True,
    "download_all_examples": False,
    "show_signature": False,
    # Without torch its examples are shown but not run.
    "filename_pattern": r"/plot_" if has_torch else r"/plot_(?!dreamt_digits|torch_energy)",
}
suppress_warnings = ["config.cache"]  # sphinx-gallery's settings cannot be pickled by Sphinx

html_theme = "pydata_sphinx_theme"
html_title = "sklsb"
html_static_path = ["_static"]
html_show_sourcelink = False
html_theme_options = {"navigation_with_keys": False, "show_prev_next": False}
