"""The catalogue of planted faults.

Each fault is a mistake people make, kept small and named.  It is planted with

    with planted("no-scale"):
        ...

and removed when the block ends, whatever happens in it.  One catalogue serves four uses:
to test our tests, to tell readers which known mistake their answer equals, to hide a
fault for them to find, and to try the tests they write.
"""

# Importing the parts fills the catalogue.
from course_lib.workbook import (  # noqa: F401
    faults_attention,
    faults_experiments,
    faults_gradients,
    faults_model,
    faults_results,
    faults_text,
    faults_training,
)
from course_lib.workbook.planting import FAULTS, Fault, planted

__all__ = ["FAULTS", "Fault", "planted"]
