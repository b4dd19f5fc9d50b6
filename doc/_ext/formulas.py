"""Formulas as MathML: browsers draw it by themselves, without a network and without scripts."""

import re

from docutils import nodes
from docutils.utils.math import MathError, latex2mathml
from sphinx.util import logging

logger = logging.getLogger(__name__)

# What the converter of docutils does not know.
_NAMES = (
    (re.compile(r"\\dots\b"), r"\\ldots"),
    (re.compile(r"\\tfrac(\d)(\d)"), r"\\tfrac{\1}{\2}"),
)
# Between the name of a function and its argument: a thin space, but before a bracket.
_SPACES = (
    (re.compile(r"<mo>&ApplyFunction;</mo>(?=\s*<mo)"), ""),
    (re.compile(r"<mo>&ApplyFunction;</mo>"), '<mspace width="0.17em"></mspace>'),
)


def mathml(tex, node, block=False):
    """Convert; what cannot be converted is a warning, and so an error with ``-W``."""
    for pattern, name in _NAMES:
        tex = pattern.sub(name, tex)
    tex = " ".join(tex.split())
    try:
        converted = latex2mathml.tex2mathml(tex, as_block=block)
    except MathError as error:
        logger.warning("the formula %r has no MathML: %s", tex, error, location=node)
        return f"<code>{node.astext()}</code>"
    for pattern, space in _SPACES:
        converted = pattern.sub(space, converted)
    return converted


def visit_inline(self, node):
    self.body.append(f'<span class="formula">{mathml(node.astext(), node)}</span>')
    raise nodes.SkipNode


def visit_block(self, node):
    self.body.append(self.starttag(node, "div", CLASS="formula"))
    self.body.append(mathml(node.astext(), node, block=True) + "</div>\n")
    raise nodes.SkipNode


def setup(app):
    app.add_html_math_renderer("mathml", (visit_inline, None), (visit_block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
