"""Buttons that need a repository: its address, its issues, and a launch on Binder.

They appear when _config.yml names an address under repository, url. Without one
there is nothing they could lead to, so there are none.
"""

BUTTONS = {
    "use_repository_button": True,
    "use_issues_button": True,
    "launch_buttons": {"binderhub_url": "https://mybinder.org", "notebook_interface": "jupyterlab"},
}


def add_buttons(app, config):
    options = config.html_theme_options
    if options.get("repository_url"):
        config.html_theme_options = {**options, **BUTTONS}


def setup(app):
    app.connect("config-inited", add_buttons)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
