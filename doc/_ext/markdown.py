"""Pages from Markdown files: ``.. markdown:: file`` in a page stands for the text below its title.

Only what these files use: headings, lists, tables, fenced code, code, bold type and links.
"""

import pathlib
import re

_INLINE = re.compile(r"`([^`]+)`|(?<!\w)\*\*(.+?)\*\*|\[([^]]+)\]\(([^)]+)\)")
_LINES = {2: "-", 3: "^", 4: "~"}


def _escaped(text):
    return re.sub(r"([\\*`|_])", r"\\\1", text)


def _marked(match):
    code, bold, text, url = match.groups()
    if code:
        return f"``{' '.join(code.split())}``"
    return f"**{bold.replace('`', '')}**" if bold else f"`{_escaped(text)} <{url}>`__"


def inline(text):
    """Convert a paragraph."""
    made, end = "", 0
    for match in _INLINE.finditer(text):
        made += _escaped(text[end : match.start()])
        before = r"\ " if made[-1:].isalnum() else ""  # marks must stand alone
        end = match.end()
        made += before + _marked(match) + (r"\ " if text[end : end + 1].isalnum() else "")
    return made + _escaped(text[end:])


def table(rows):
    """Convert a table; the second row is a ruler."""
    made = [".. list-table::", "   :header-rows: 1", ""]
    for row in rows[:1] + rows[2:]:
        first, *others = (cell.strip() for cell in row.strip("|").split("|"))
        made += [f"   * - {inline(first)}", *(f"     - {inline(cell)}" for cell in others)]
    return made


def converted(text):
    """Return reStructuredText without the title."""
    made = []
    for block in re.split(r"\n\s*\n(?![^\n]*\n```)", text.partition("\n")[2].strip()):
        lines = block.split("\n")
        if lines[0].startswith("```"):
            made += [f".. code-block:: {lines[0][3:]}", "", *(f"   {line}" for line in lines[1:-1])]
        elif heading := re.fullmatch(r"(#{2,4}) (.+)", block):
            title = inline(heading[2].strip("[]"))
            made += [title, _LINES[len(heading[1])] * len(title)]
        elif lines[0].startswith("|"):
            made += table(lines)
        else:
            made += inline(block).split("\n")
        made.append("")
    return "\n".join(made)


def read(app, docname, content):
    """Put the text of a file where a page asks for it."""

    def included(match):
        path = pathlib.Path(app.srcdir, match[1])
        app.env.note_dependency(str(path))
        return converted(path.read_text(encoding="utf-8"))

    content[0] = re.sub(r"^\.\. markdown:: (\S+)$", included, content[0], flags=re.MULTILINE)


def setup(app):
    app.connect("source-read", read)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
