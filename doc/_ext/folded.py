"""Lists of the page of changes are folded but for what breaks code: headings are an overview."""

from docutils import nodes


def fold(app, doctree, docname):
    """Put each list below a heading into an element that opens by a click."""
    if docname != "changes":
        return
    for found in [*doctree.findall(nodes.bullet_list)]:
        above = getattr(found.parent, "parent", None)
        is_open = isinstance(above, nodes.section) and above[0].astext() == "Before you update"
        if isinstance(found.parent, nodes.section) and not is_open:
            n = len(found)
            head = f"<details><summary>{n} change{'s' * (n > 1)}</summary>"
            opened, closed = (nodes.raw("", text, format="html") for text in (head, "</details>"))
            found.replace_self([opened, found.deepcopy(), closed])


def setup(app):
    app.connect("doctree-resolved", fold)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
