"""Fill the report of a run from its records: ``python -m course_lib.report``."""

import sys
from pathlib import Path

from course_lib import manifest
from course_lib.command import add_threads, as_path, as_text, make_parser, run, say, use_threads
from course_lib.errors import UsageError
from course_lib.verification import reporting


def parse(arguments):
    """Return the options of the command."""
    parser = make_parser(
        "course_lib.report",
        "Fill the marked fields of a report from the records of a run folder; no number is typed. "
        "A report that is there already keeps its own words and has its fields filled again.",
        "python -m course_lib.report runs/my-model --output runs/my-model/report.md",
    )
    add = parser.add_argument
    add("run", metavar="RUN", help="the run folder")
    add("--output", required=True, metavar="FILE", help="the report, in Markdown")
    add(
        "--template",
        metavar="FILE",
        help="what to fill (default: the report that is there, else the course's template)",
    )
    add(
        "--data",
        action="append",
        default=[],
        metavar="DIR",
        help="where a corpus lies, if not where the manifest says; may be given again",
    )
    add_threads(parser)
    return parser.parse_args(arguments)


def main(arguments):
    """Run the command; return its exit code."""
    options = parse(arguments)
    use_threads(options.threads)
    folder = Path(as_path(as_text(options.run)))
    output = Path(options.output)
    if not folder.is_dir():
        raise UsageError(f"there is no run folder {folder}.", expected="a folder that train wrote")
    if output.exists():
        template = reporting.read_template(output, "the report")
    else:
        manifest.check_output(output, reporting.KIND)
        template = None
    if options.template or template is None:
        template = reporting.read_template(options.template or reporting.template_path())
    opened = reporting.open_run(folder, options.data, reporting.name_inside(folder, output))
    text = reporting.fill(template, opened)
    reporting.write_report(opened, output, text)
    missing = text.count("*Missing from this run: ")
    say(f"filled {len(reporting.FIELDS)} fields; {missing} values are missing from the run")
    return 0


if __name__ == "__main__":
    sys.exit(run(main))
