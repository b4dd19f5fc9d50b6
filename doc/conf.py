"""Sphinx configuration."""

import importlib.metadata
import importlib.util
import os
import pathlib
import sys
import warnings

from sklsb.exceptions import SamplerWarning

# The answers of examples are right, as far as samplers can tell.
warnings.simplefilter("error", SamplerWarning)

sys.path.insert(0, str(pathlib.Path(__file__).parent / "_ext"))

project = "sklsb"
author = "the sklsb developers"
copyright = "2026, the sklsb developers"
release = version = importlib.metadata.version("sklsb")

extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "matplotlib.sphinxext.plot_directive",
    "myst_parser",
    "numpydoc",
    "sphinx_copybutton",
    "sphinx_gallery.gen_gallery",
    "folded",
    "formulas",
    "measured",
    "reference",
    "signatures",
    "thumbnails",
]
html_math_renderer = "mathml"
exclude_patterns = ["_build", "**/GALLERY_HEADER.rst"]
templates_path = ["_templates"]
default_role = "py:obj"  # a name in backticks leads to its page
# Pages of what needs these are built without them, too.
autodoc_mock_imports = [
    name for name in ("dimod", "pymc", "pytensor") if not importlib.util.find_spec(name)
]

autosummary_generate = True
autodoc_typehints = "none"  # they are in the docstrings
toc_object_entries_show_parents = "hide"
autosummary_ignore_module_all = False
autosummary_imported_members = True  # dir() of modules lists what is public, without __all__
# scikit-learn documents its own methods, some of which refer to pages of its manual; and Python
# those of tuples.
autodoc_default_options = {
    "members": True,
    "inherited-members": "BaseEstimator, BaseException",
    "exclude-members": "get_metadata_routing, set_fit_request, set_predict_request, "
    "set_predict_proba_request, set_decision_function_request, set_score_request, set_output, "
    "score, count, index",
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
    "backreferences_dir": "generated/backreferences",
    "doc_module": ("sklsb",),
    "within_subsection_order": "gallery_order.FromFirstSteps",
    "abort_on_example_error": True,
    "ignore_repr_types": r"matplotlib|list",
    "download_all_examples": False,
    "show_signature": False,
    "write_computation_times": False,  # that page takes scripts from elsewhere
    # Without torch its examples are shown but not run.
    "filename_pattern": r"/plot_" if has_torch else r"/plot_(?!dreamt_digits|torch_energy)",
}
# Settings of sphinx-gallery cannot be pickled; the title of a Markdown file is that of its page.
suppress_warnings = ["config.cache", "myst.header"]
myst_all_links_external = True

# Copied without prompts and without what Python prints.
copybutton_prompt_text = r">>> |\.\.\. "
copybutton_prompt_is_regexp = True

html_theme = "pydata_sphinx_theme"
html_title = f"sklsb {version}"
html_favicon = "_static/logo.svg"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_show_sourcelink = False
html_copy_source = False
html_search_scorer = str(pathlib.Path(__file__).with_name("_ext") / "scorer.js")
html_sidebars = {"index": [], "search": [], "genindex": [], "py-modindex": []}
html_theme_options = {
    "logo": {
        "text": html_title,
        "image_light": "_static/logo.svg",
        "image_dark": "_static/logo.svg",
        "alt_text": "The logo: a lattice of spins",
    },
    "navigation_with_keys": False,
    "show_prev_next": True,
    "header_links_before_dropdown": 6,
    "navbar_end": ["theme-switcher", "navbar-icon-links"],
    "footer_end": [],
    "secondary_sidebar_items": ["page-toc", "edit-this-page"],
}
html_context = {"default_mode": "auto"}
# A host of the repository says where it is, as "owner/name" on GitHub; then there are links.
repository = os.environ.get("SKLSB_REPOSITORY", "")
if repository:
    owner, name = repository.split("/")
    url = f"https://github.com/{repository}"
    html_theme_options |= {
        "icon_links": [
            {"name": "Repository", "url": url, "icon": "fa-brands fa-github"},
            {"name": "Issues", "url": f"{url}/issues", "icon": "fa-solid fa-circle-dot"},
        ],
        "use_edit_page_button": True,
    }
    html_context |= {
        "github_user": owner,
        "github_repo": name,
        "github_version": "main",
        "doc_path": "doc",
    }
link = f"`repository <https://github.com/{repository}>`__" if repository else "repository"
rst_epilog = f".. |repository| replace:: {link}\n"
