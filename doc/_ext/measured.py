"""Figures with what they were made by, from files that benchmarks write (``benchmarks/record.py``).

Tables of earlier pages name the commit that wrote the oldest line of the table, and ``sources``,
the files that they measure.
"""

import ast
import hashlib
import pathlib
import shlex
import subprocess

from docutils import nodes
from docutils.parsers.rst import Directive, directives

ROOT = pathlib.Path(__file__).parents[2]
MEANING = "glossary.html#term-changed-since"


def git(*given):
    """What git prints, or None where it fails or is missing."""
    try:
        done = subprocess.run(["git", *given], cwd=ROOT, capture_output=True)
    except OSError:
        return None
    return None if done.returncode else done.stdout


class Types(ast.NodeTransformer):
    """Takes away docstrings, annotations, and names of types of arrays."""

    def visit(self, node):
        self.generic_visit(node)
        holds = isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)
        if holds and ast.get_docstring(node) is not None:
            del node.body[0]
        for name in {"annotation", "returns"} & {*node._fields}:
            setattr(node, name, ast.Constant(None))
        of_arrays = isinstance(node, ast.Assign) and "NDArray" in ast.dump(node.value)
        of_arrays |= getattr(node, "module", None) in ("numpy.typing", "sklsb._system.arrays")
        return None if of_arrays else node


def normal(code):
    """Python code without what changes no figure: comments, docstrings, format and types."""
    return ast.dump(Types().visit(ast.parse(code)))


def differ(name, before, now):
    return before != now and not (name.endswith(".py") and normal(before) == normal(now))


def has_changed(commit, sources):
    """Whether the code of files has changed after a commit; False where no history tells."""
    commit = commit.rstrip("+")
    listed = git("diff", "--no-renames", "--name-status", "-z", commit, "HEAD", "--", *sources)
    fields = iter((listed or b"").decode().split("\0")[:-1])
    return any(
        kind != "M" or differ(name, *(git("show", f"{at}:{name}") for at in (commit, "HEAD")))
        for kind, name in zip(fields, fields, strict=True)
    )


def has_other_code(script, digest):
    """Whether a benchmark differs from the version of this digest, the last of its history."""

    def is_it(text):
        return hashlib.sha256(text).hexdigest().startswith(digest)

    now = (ROOT / script).read_bytes()
    if is_it(now):
        return False
    commits = (git("log", "--format=%h", "--", script) or b"").decode().split()
    versions = (git("show", f"{commit}:./{script}") or b"" for commit in commits)
    return differ(script, next(filter(is_it, versions), b"0"), now)


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
        made, old = self.options, []
        said = [f"measured {made['date']} on commit {made['commit']}", made.get("processor")]
        note = nodes.paragraph(classes=["measured"])
        if self.arguments:
            note += [nodes.literal("", self.arguments[0]), nodes.Text(", ")]
            script = shlex.split(self.arguments[0])[1]
            if "code" in made and has_other_code(script, made["code"]):
                old.append("benchmark")
        if "sources" in made and has_changed(made["commit"], made["sources"].split()):
            old.append("code")
        note += nodes.Text(", ".join(filter(None, said)))
        if old:
            changed = f"; the {' and the '.join(old)} {'has' if len(old) == 1 else 'have'} "
            note += [nodes.Text(changed), nodes.reference("", "changed since", refuri=MEANING)]
        note += nodes.Text(".")
        return [*shown.children, note]


def setup(app):
    app.add_directive("measured", Measured)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
