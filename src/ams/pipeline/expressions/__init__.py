"""Expressions of pipeline definitions: a small language over columns and functions that are on a list.

`parse` reads text into a tree, `type_of` finds what is wrong with it before Spark starts, and `column` makes a Spark
column of it, function by function. No text of a definition ever becomes SQL: there is no way to name a class, a file,
a table or a function that is not in `functions.FUNCTIONS`.
"""

from ams.pipeline.expressions.checking import type_of
from ams.pipeline.expressions.grammar import parse
from ams.pipeline.expressions.tokens import WrongExpression
from ams.pipeline.expressions.tree import Node

__all__ = ["Node", "WrongExpression", "parse", "type_of"]
