"""What serves the reader's work: exercises, their checks, guesses, and planted faults.

Nothing above this package imports it; the library runs without it.
"""

from course_lib.workbook.checks import check
from course_lib.workbook.faults import FAULTS, planted
from course_lib.workbook.prediction import compare_guess
from course_lib.workbook.records import recorded

__all__ = ["FAULTS", "check", "compare_guess", "planted", "recorded"]
