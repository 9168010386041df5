"""Make again everything that is recorded: python -m book.refresh

In order: the reference run with its evaluation and one generation, the record
of it under book/, the stored measurements, every notebook, the site. It stops at the first step that
fails. Run it after a change of the library, the data or a pinned version, and
read the difference before keeping it.
"""

import sys

from book import build, execute, notebooks, reference

EVALUATE = (
    "-m course_lib.evaluate --checkpoint runs/reference/checkpoint.pt --split {split} "
    "--batch-size 8 --threads 1 --output runs/reference/{split}.json"
)
GENERATE = (
    "-m course_lib.generate --checkpoint runs/reference/checkpoint.pt --prompt 小禾 "
    "--max-new-tokens 60 --temperature 0 --threads 1 --output runs/reference/greedy.json"
)
COMMANDS = (
    EVALUATE.format(split="test").split(),
    EVALUATE.format(split="validation").split(),
    GENERATE.split(),
    ["-m", "book.record"],
    ["-m", "book.measurements"],
)


def main():
    code = reference.train()
    for command in COMMANDS:
        code = code or reference.run_course(command)
    return code or execute.main([]) or build.main()


if __name__ == "__main__":
    notebooks.take_no_options("book.refresh", __doc__)
    sys.exit(main())
