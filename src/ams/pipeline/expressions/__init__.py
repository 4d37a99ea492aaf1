"""Expressions of pipeline definitions: SQL, as Spark writes it, of operators and functions that are on a list.

`expression` reads text over columns, finds what is wrong with it before Spark starts, and gives a Spark column that is
made function by function. No text of a definition reaches Spark's parser: there is no way to name a class, a file, a
table or a function that is not in `functions.FUNCTIONS`.
"""

from ams.pipeline.expressions.checking import aggregate, expression, hint
from ams.pipeline.expressions.functions import Expression
from ams.pipeline.expressions.parsing import WrongExpression

__all__ = ["Expression", "WrongExpression", "aggregate", "expression", "hint"]
