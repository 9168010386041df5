"""The figures of the book: one function a figure, one style for all.

Each function takes plain arrays and returns the figure, so that a notebook can assert what
the arrays are before it shows them.
"""

from matplotlib import pyplot as plt

from course_lib.plotting.decoder import influence_map, initial_losses, loss_curves, module_bars
from course_lib.plotting.style import label_of

__all__ = ["influence_map", "initial_losses", "label_of", "loss_curves", "module_bars", "plt"]
