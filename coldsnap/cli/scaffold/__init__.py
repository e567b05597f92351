"""New files that work as they are: a step type, a plan. Texts are templates beside this file."""
