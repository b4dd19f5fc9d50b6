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
    # The power is of the whole bracket, not of its last half.
    (re.compile(r"(\\langle(?:(?!\\langle).)*?\\rangle)(?=\^)"), r"{\1}"),
)
# Between the name of a function and its argument: a thin space, but before a bracket. Brackets of
# means are as high as their letters, as in LaTeX.
_MENDED = (
    (re.compile(r"<mo>&ApplyFunction;</mo>(?=\s*<mo)"), ""),
    (re.compile(r"<mo>&ApplyFunction;</mo>"), '<mspace width="0.17em"></mspace>'),
    (re.compile(r"\\_"), "_"),
    (re.compile(r"<mo>([⟨⟩{}])</mo>"), r'<mo stretchy="false">\1</mo>'),
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
    for pattern, mended in _MENDED:
        converted = pattern.sub(mended, converted)
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
