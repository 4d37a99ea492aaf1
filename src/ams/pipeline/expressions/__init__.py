"""Expressions of pipeline definitions: Spark's SQL, limited to an allow-list of operators and functions.

`expression` validates a text before Spark starts, and builds a Spark column function by function. No text of a
definition reaches Spark's parser, so it cannot name a class, a file, a table or a function outside
`functions.FUNCTIONS`.
"""

from ams.pipeline.expressions.functions import Expression
from ams.pipeline.expressions.parser import WrongExpression
from ams.pipeline.expressions.validation import aggregate, expression, hint

__all__ = ["Expression", "WrongExpression", "aggregate", "expression", "hint"]
