"""The pages of the course and the commands that build them.

    environment.py   check the Python and make .venv (before anything is installed)
    notebooks.py     what a stored notebook must be like
    execute.py       make the notebooks from their text and run them
    reference.py     train the reference run
    record.py        copy what the book prints about the reference run
    build.py         the site
    refresh.py       all of these in order
    lock.py          the files in constraints/
    font.py          the font of the figures
"""
