"""Keep every page free of what would need a network, or fails without a web server.

jupyter-book loads sphinx-thebe for live code on a remote machine. The course
does not use it, it names a foreign address on every page, and its settings are
written twice, which browsers report as an error. So its scripts are taken out.

The theme draws its icons twice, with a font and with a script of 1.5 MB that puts
pictures in the place of the font's signs. The font is enough, so the script is
taken out.

The theme loads the index of the search with every page, but only the search page
reads it.

The theme for Python 3.10 asks browsers to load its fonts early, in a way they
refuse for file:// addresses. The fonts load without that, so it is taken out.
"""

import re
from pathlib import Path

FONTAWESOME = re.compile(r'<script[^>]*fontawesome\.js[^>]*></script>\s*')
SEARCH = re.compile(r'<script[^>]*(?:searchindex|searchtools|language_data)\.js[^>]*></script>\s*')
FONT_PRELOAD = re.compile(r'<link rel="preload" as="font"[^>]*>\s*')


def without_scripts(app, pagename, templatename, context, doctree):
    context["script_files"] = [
        script
        for script in context["script_files"]
        if "thebe" not in f"{getattr(script, 'filename', script)} {getattr(script, 'attributes', '')}"
    ]


def without_slow_tags(app, exception):
    if exception is not None:
        return
    for path in Path(app.outdir).rglob("*.html"):
        text = path.read_text(encoding="utf-8")
        shorter = FONTAWESOME.sub("", FONT_PRELOAD.sub("", text))
        if path.name != "search.html":
            shorter = SEARCH.sub("", shorter)
        if shorter != text:
            path.write_text(shorter, encoding="utf-8", newline="\n")


def setup(app):
    # After the theme has added its own scripts (priority 500).
    app.connect("html-page-context", without_scripts, priority=900)
    app.connect("build-finished", without_slow_tags)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
