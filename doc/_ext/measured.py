"""Figures with what they were made by, from files that benchmarks write (``benchmarks/record.py``).

Tables of earlier pages name the commit that wrote the oldest line of the table, and ``sources``,
the files that they measure.
"""

import hashlib
import pathlib
import shlex
import subprocess

from docutils import nodes
from docutils.parsers.rst import Directive, directives

ROOT = pathlib.Path(__file__).parents[2]


def has_changed(commit, sources):
    """Whether files have changed after a commit; False where no history tells."""
    command = ["git", "diff", "--quiet", commit.rstrip("+"), "HEAD", "--", *sources]
    try:
        return subprocess.run(command, cwd=ROOT, capture_output=True).returncode == 1
    except OSError:  # no git
        return False


class Measured(Directive):
    """Show the figures, and say below when and how they were made and whether that still holds."""

    optional_arguments = 1
    final_argument_whitespace = True
    has_content = True
    option_spec = {
        name: directives.unchanged_required
        for name in ("date", "commit", "processor", "code", "sources")
    }

    def run(self):
        shown = nodes.container()
        self.state.nested_parse(self.content, self.content_offset, shown)
        made, changed = self.options, []
        note = nodes.paragraph()
        if self.arguments:
            note += [nodes.literal("", self.arguments[0]), nodes.Text(", ")]
            if "code" in made:
                script = ROOT / shlex.split(self.arguments[0])[1]
                if not hashlib.sha256(script.read_bytes()).hexdigest().startswith(made["code"]):
                    changed.append("the benchmark")
        else:
            note += nodes.Text("Command not recorded, ")
        sources = made.get("sources", "").split()
        if sources and has_changed(made["commit"], sources):
            changed.append("the code")
        processor = made.get("processor", "processor not recorded")
        note += nodes.Text(f"{made['date']}, commit {made['commit']}, {processor}.")
        if changed:
            what = " and ".join(changed)
            note += nodes.strong("", f" Measured before the last change of {what}.")
        return [*shown.children, note]


def setup(app):
    app.add_directive("measured", Measured)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
