"""The report of a run: a template whose marked fields are filled from its records (chapter 12).

A field stands between two marks, ``<!-- begin: NAME -->`` and ``<!-- end: NAME -->``.  What
stands outside is the reader's own prose and is kept when the report is filled again; what
stands inside is a function of the run folder, so that a verification can fill it again and
compare.
"""

import re
from pathlib import Path

import course_lib
from course_lib.errors import UsageError, VerificationError
from course_lib.files import read_bytes, read_json, write_bytes
from course_lib.manifest import MANIFEST_NAME, open_manifest, register_file
from course_lib.verification.claims import RunFolder, find_corpora
from course_lib.verification.fields import FIELDS
from course_lib.verification.inventory import check_files, check_names, is_core, read_manifest
from course_lib.verification.shapes import check_record

KIND = "course report 1"
FIRST_LINE = f"<!-- {KIND} -->"
FIELD = re.compile(r"<!-- begin: (\S+) -->\n(.*?)<!-- end: \1 -->", re.DOTALL)
TEMPLATE_NAME = "report_template.md"


def template_path():
    """Return the path of the course's template, in a clone or installed."""
    library = Path(course_lib.__file__).parent
    installed = library / TEMPLATE_NAME
    return installed if installed.is_file() else library.parent / "book" / TEMPLATE_NAME


def read_template(path, what="the template"):
    """Return the text of a template or report that has every field exactly once.

    Raises:
        UsageError: when it cannot be read, or names other fields.
    """
    try:
        text = read_bytes(path).decode("utf-8").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} is not UTF-8 text.", repair="choose another path") from error
    names = [name for name, _ in FIELD.findall(text)]
    if not text.startswith(FIRST_LINE) or sorted(names) != sorted(FIELDS):
        raise UsageError(
            f"{what} {path} is not one of this course.",
            expected=f"the first line {FIRST_LINE} and each field once: {', '.join(FIELDS)}",
            got=f"fields {', '.join(names) or 'none'}",
            repair=f"begin with {template_path()}",
        )
    return text


def fill(template, run):
    """Return `template` with what stands in each field replaced by what the run says.

    Args:
        template: what `read_template` returned.
        run: a `RunFolder` whose manifest, records and corpus have been read.

    Source: chapter 12.
    """

    def filled(match):
        name = match.group(1)
        text = FIELDS[name](run).strip("\n").replace("<!--", "< !--")
        return f"<!-- begin: {name} -->\n{text}\n<!-- end: {name} -->"

    return FIELD.sub(filled, template)


def check_report(run, name):
    """Fill a registered report again, and compare each field.

    Args:
        run: a `RunFolder` that has been read.
        name: of the report in it.

    Returns:
        The number of fields compared.

    Raises:
        VerificationError: naming the first field and line that differ.

    Source: chapter 12.
    """
    text = read_template(run.folder / name, "the report")
    again = dict(FIELD.findall(fill(text, run)))
    for field, content in FIELD.findall(text):
        if content != again[field]:
            lines = zip([*content.splitlines(), ""], [*again[field].splitlines(), ""])
            claimed, found = next((pair for pair in lines if pair[0] != pair[1]), ("", ""))
            raise VerificationError(
                f"{name}: the field {field!r} is not what the folder says.",
                expected=found or "(nothing more)",
                got=claimed or "(nothing)",
                repair=f"fill it again: python -m course_lib.report {run.folder} "
                f"--output {run.folder / name}",
            )
    return len(FIELDS)


def open_run(folder, data=(), replacing=None):
    """Return a `RunFolder` with manifest, records and corpus read, its files as listed.

    Nothing is scored again: that is the verification's work.

    Raises:
        CourseError: when a file is not as the manifest says, or the corpus is not here.
    """
    run = RunFolder(folder, data, replacing)
    run.manifest = read_manifest(folder)
    check_names(run.manifest["files"])
    check_files(folder, run.manifest, replacing)
    read_records(run)
    for name, record in run.records.items():
        check_record(record, name)
    find_corpora(run)
    return run


def read_records(run):
    """Read each registered JSON result; return the names of those that are no JSON.

    Raises:
        VerificationError: for a result that is not of the kind it is registered as.
    """
    others = []
    for name, entry in run.manifest["files"].items():
        if is_core(name) or name == run.replacing:
            continue
        if not name.endswith(".json"):
            others.append(name)
            continue
        record = read_json(run.folder / name)
        found = record.get("format") if isinstance(record, dict) else None
        if found != entry["kind"]:
            raise VerificationError(
                f"{name} is registered as another kind of result.",
                expected=repr(entry["kind"]),
                got=repr(found),
                repair="make the result again with its command",
            )
        run.records[name] = record
    return others


def name_inside(folder, output):
    """Return the name of `output` in a run folder, with forward slashes; None outside of it."""
    folder, output = Path(folder).resolve(), Path(output).resolve()
    return output.relative_to(folder).as_posix() if output.is_relative_to(folder) else None


def write_report(run, output, text):
    """Write a report; if it lands in the run folder, register it there.

    Raises:
        CourseError: when it cannot be written, or another process uses the folder.
    """
    name = name_inside(run.folder, output)
    if name is None:
        write_bytes(output, text.encode("utf-8"))
        return
    if name in (MANIFEST_NAME,) or is_core(name):
        raise UsageError(f"{output} is the run's own.", repair="choose another --output")
    with open_manifest(run.folder) as manifest:
        write_bytes(output, text.encode("utf-8"))
        register_file(
            manifest, run.folder, name, kind=KIND, weights=manifest["weights"]["digest"]
        )
