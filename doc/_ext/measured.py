"""Figures that a benchmark has written, with what they were made by (``benchmarks/record.py``)."""

import hashlib
import pathlib
import shlex

from docutils import nodes
from docutils.parsers.rst import Directive, directives


class Measured(Directive):
    """Show the figures, and say below when and how they were made and whether that still holds."""

    required_arguments = 1
    final_argument_whitespace = True
    has_content = True
    option_spec = {
        name: directives.unchanged_required for name in ("date", "commit", "processor", "code")
    }

    def run(self):
        shown = nodes.container()
        self.state.nested_parse(self.content, self.content_offset, shown)
        made = self.options
        script = pathlib.Path(__file__).parents[2] / shlex.split(self.arguments[0])[1]
        digest = hashlib.sha256(script.read_bytes()).hexdigest()
        note = nodes.paragraph("", "", nodes.literal("", self.arguments[0]))
        note += nodes.Text(f", {made['date']}, commit {made['commit']}, {made['processor']}.")
        if not digest.startswith(made["code"]):
            note += nodes.strong("", " The benchmark has changed since.")
        return [*shown.children, note]


def setup(app):
    app.add_directive("measured", Measured)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
