"""Lists of changes are folded but for the first, and what breaks code: headings are an overview."""

from docutils import nodes

OPEN = {"What it offers", "For those who used earlier commits"}


def fold(app, doctree, docname):
    """Put each list below a heading into an element that opens by a click."""
    if docname != "changes":
        return
    for found in [*doctree.findall(nodes.bullet_list)]:
        above = [s for s in (found.parent, found.parent.parent) if isinstance(s, nodes.section)]
        is_open = OPEN & {s[0].astext() for s in above}
        if isinstance(found.parent, nodes.section) and not is_open:
            n = len(found)
            head = f"<details><summary>{n} change{'s' * (n > 1)}</summary>"
            opened, closed = (nodes.raw("", text, format="html") for text in (head, "</details>"))
            found.replace_self([opened, found.deepcopy(), closed])


def setup(app):
    app.connect("doctree-resolved", fold)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
