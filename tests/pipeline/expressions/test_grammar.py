import pytest
from hypothesis import given
from hypothesis import strategies as st

from ams.pipeline.expressions import WrongExpression, parse, type_of, types
from ams.pipeline.expressions.functions import FUNCTIONS
from ams.pipeline.expressions.grammar import MAX_DEPTH, MAX_SIGNS
from ams.pipeline.expressions.tokens import MAX_LENGTH
from ams.pipeline.expressions.tree import Binary, Call, Column, Field, IsNull, Item, Literal, Node, OneOf, Unary

COLUMNS = {
    "site": types.TEXT,
    "jobs": types.WHOLE,
    "wall": types.NUMBER,
    "ok": types.BOOLEAN,
    "at": types.TIME,
    "tags": types.list_of(types.TEXT),
    "attributes": types.map_of(types.TEXT),
    "place": types.record({"lat": types.NUMBER}),
    "data": types.BYTES,
}

A, B, C = Column("a"), Column("b"), Column("c")


@pytest.mark.parametrize(
    ("text", "tree"),
    [
        ("1", Literal(1)),
        ("1.5e3", Literal(1500.0)),
        ("'it''s'", Literal("it's")),
        ('"say ""x"""', Literal('say "x"')),
        ("null", Literal(None)),
        ("a or b and c", Binary("or", A, Binary("and", B, C))),
        ("(a or b) and c", Binary("and", Binary("or", A, B), C)),
        ("not a and b", Binary("and", Unary("not", A), B)),
        ("not a == b", Unary("not", Binary("==", A, B))),
        ("a + b * c", Binary("+", A, Binary("*", B, C))),
        ("a - b - c", Binary("-", Binary("-", A, B), C)),
        ("-a * b", Binary("*", Unary("-", A), B)),
        ("-a.b", Unary("-", Field(A, "b"))),
        ("a['x'].b[0]", Item(Field(Item(A, Literal("x")), "b"), Literal(0))),
        ("a in (1, b)", OneOf(A, (Literal(1), B))),
        ("a not in (1)", Unary("not", OneOf(A, (Literal(1),)))),
        ("a is null", IsNull(A)),
        ("a is not null and b", Binary("and", Unary("not", IsNull(A)), B)),
        ("f()", Call("f", ())),
        ("f(a, g(b))", Call("f", (A, Call("g", (B,))))),
    ],
)
def test_signs_bind_as_people_expect(text: str, tree: Node) -> None:
    assert parse(text) == tree


@pytest.mark.parametrize(
    ("text", "position", "reason"),
    [
        ("", 1, "a value is expected here, not the end"),
        ("site == ", 9, "a value is expected here, not the end"),
        ("site = 'x'", 6, "compare with =="),
        ("ok && ok", 4, "write and"),
        ("site || 'x'", 6, "write or; texts are joined by concat(...)"),
        ("!ok", 1, "write not"),
        ("site 'x'", 6, "'x' is not expected here"),
        ("'open", 1, "this text has no end"),
        ("1 < jobs < 3", 10, "comparisons are not chained: use and, or brackets"),
        ("jobs in ()", 9, "at least one value is expected in the brackets"),
        ("jobs in 1", 9, "'(' is expected here, not '1'"),
        ("(jobs", 6, "')' is expected here, not the end"),
        ("place.'x'", 7, "the name of a field is expected here, not 'x'"),
        ("9223372036854775808", 1, "a whole number has at most 63 bits"),
        ("1e999", 1, "this number is too large"),
        ("§", 1, "'§' means nothing here"),
        ("(" * (MAX_DEPTH + 1), MAX_DEPTH + 1, f"deeper than {MAX_DEPTH} levels"),
        ("1" + "+1" * (MAX_SIGNS + 1), 2 * MAX_SIGNS + 2, f"more than {MAX_SIGNS} signs"),
        ("tags" + "[0]" * (MAX_SIGNS + 1), 3 * MAX_SIGNS + 5, f"more than {MAX_SIGNS} signs"),
        ("a" * (MAX_LENGTH + 1), MAX_LENGTH, f"longer than {MAX_LENGTH} characters"),
    ],
)
def test_what_is_no_expression_is_refused_with_its_place(text: str, position: int, reason: str) -> None:
    with pytest.raises(WrongExpression) as raised:
        parse(text)

    assert (raised.value.position, raised.value.reason) == (position, reason)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("reflect('java.lang.Runtime', 'getRuntime')", "no function 'reflect'"),
        ("java_method('java.lang.System', 'exit', 1)", "no function 'java_method'"),
        ("try_reflect('java.lang.System', 'exit')", "no function 'try_reflect'"),
        ("assert_true(ok)", "no function 'assert_true'"),
        ("raise_error(site)", "no function 'raise_error'"),
        ("input_file_name()", "no function 'input_file_name'"),
        ("current_user()", "no function 'current_user'"),
        ("__import__('os')", "no function '__import__'"),
        ("(select site from secrets)", "')' is expected here, not 'site'"),
        ("site in (select site)", "',' is expected here, not 'site'"),
        ("exists (select 1)", "',' is expected here"),
        ("parquet.`/etc/passwd`", "names are written without back quotes"),
        ("`site`", "names are written without back quotes"),
        ("site from jobs", "'from' is not expected here"),
        ("ok; drop table jobs", "one expression is expected, without ;"),
        ("ok -- true", "- needs a number, not boolean"),
        ("ok /* x */", "a value is expected here, not '*'"),
        ("x -> x", "there are no lambdas"),
        ("site.*", "the name of a field is expected here, not '*'"),
        ("*", "a value is expected here, not '*'"),
        ("case when ok then 1 end", "'when' is not expected here"),
        ("cast(site as int)", "',' is expected here, not 'as'"),
        ("{{ site }}", "there are no templates here"),
        ("${site}", "there are no variables here"),
        ("site\\", "means nothing here"),
        ("_metadata.file_path", "no column '_metadata'"),
        ("Site == 'x'", "no column 'Site'; did you mean site?"),
    ],
)
def test_nothing_leads_out_of_the_columns_and_functions_on_the_list(text: str, reason: str) -> None:
    with pytest.raises(WrongExpression) as raised:
        type_of(parse(text), COLUMNS)

    assert reason in raised.value.reason


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("jobs + 1", types.WHOLE),
        ("jobs + 1.5", types.NUMBER),
        ("jobs / 2", types.NUMBER),
        ("-wall", types.NUMBER),
        ("jobs > wall", types.BOOLEAN),
        ("at > time('2024-03-05T00:00:00Z')", types.BOOLEAN),
        ("site in ('a', 'b') and not ok", types.BOOLEAN),
        ("attributes['x']", types.TEXT),
        ("tags[0]", types.TEXT),
        ("place.lat", types.NUMBER),
        ("coalesce(null, jobs, 1.5)", types.NUMBER),
        ("if(ok, 'a', null)", types.TEXT),
        ("split(site, '-')", types.list_of(types.TEXT)),
        ("contains(tags, 'x') or contains(site, 'x')", types.BOOLEAN),
        ("text(data)", types.TEXT),
        ("json(place)", types.TEXT),
        ("abs(jobs)", types.WHOLE),
        ("day(at)", types.DAY),
        ("null is null", types.BOOLEAN),
    ],
)
def test_types_are_known_before_spark_starts(text: str, wanted: types.Type) -> None:
    assert type_of(parse(text), COLUMNS) == wanted


@pytest.mark.parametrize(
    ("text", "position", "reason"),
    [
        ("site + 1", 1, "+ needs numbers on both sides, not text; texts are joined by concat(...)"),
        ("site == jobs", 6, "text is not compared with whole; whole(...) makes one of text"),
        ("at > '2024-03-05'", 4, "time is not compared with text; time(...) makes one of text"),
        ("tags == tags", 6, "list of text cannot be compared"),
        ("jobs and ok", 1, "and needs true or false on both sides, not whole"),
        ("not jobs", 5, "not needs true or false, not whole"),
        ("-site", 2, "- needs a number, not text"),
        ("lower(jobs)", 7, "lower needs text here, not whole"),
        ("lower()", 1, "lower takes 1 argument, not 0"),
        ("concat()", 1, "concat takes at least 1 argument, not 0"),
        ("split(site, site)", 13, "split needs text that is written down here, not text"),
        ("if(ok, 1, 'x')", 1, "the arguments of if do not go together: boolean, whole, text"),
        ("site.x", 5, "text has no fields"),
        ("attributes.x", 11, "map of text has no fields; write ['x']"),
        ("place.lon", 6, "no field 'lon'; there are lat"),
        ("site[0]", 5, "only a list or a map has items, not text"),
        ("tags['x']", 6, "the items of a list are asked for by whole, not text"),
        ("site in ('a', 1)", 15, "text is not compared with whole; whole(...) makes one of text"),
        ("lowe(site)", 1, "no function 'lowe'; did you mean lower?"),
    ],
)
def test_wrong_types_are_refused_with_their_place(text: str, position: int, reason: str) -> None:
    with pytest.raises(WrongExpression) as raised:
        type_of(parse(text), COLUMNS)

    assert (raised.value.position, raised.value.reason) == (position, reason)


@given(st.text(max_size=60) | st.text(alphabet="ab01'\"()[]., +-*/%<>=!andortinslum;`", max_size=60))
def test_any_text_is_an_expression_or_refused(text: str) -> None:
    try:
        type_of(parse(text), COLUMNS)
    except WrongExpression as error:
        assert 1 <= error.position <= len(text) + 1


NAMES = st.sampled_from([*COLUMNS, *FUNCTIONS, "reflect", "select", "from", "expr"])
LEAVES = st.builds(Column, NAMES) | st.builds(Literal, st.none() | st.booleans() | st.integers(0, 10) | st.just("x"))
TREES = st.recursive(
    LEAVES,
    lambda below: (
        st.builds(Binary, st.sampled_from(["and", "or", "==", "<", "+", "/"]), below, below)
        | st.builds(Call, NAMES, st.lists(below, max_size=3).map(tuple))
        | st.builds(Item, below, below)
        | st.builds(Unary, st.sampled_from(["not", "-"]), below)
    ),
    max_leaves=12,
)


def written(node: Node) -> str:
    """Write a tree as text, with brackets everywhere."""
    match node:
        case Literal(value):
            return {"None": "null", "True": "true", "False": "false"}.get(repr(value), repr(value))
        case Column(name):
            return name
        case Call(name, arguments):
            return f"{name}({', '.join(map(written, arguments))})"
        case Item(of, key):
            return f"({written(of)})[{written(key)}]"
        case Unary(sign, of):
            return f"{sign} ({written(of)})"
        case Binary(sign, left, right):
            return f"({written(left)}) {sign} ({written(right)})"
    raise AssertionError(node)


@given(TREES)
def test_what_is_written_is_what_is_read(tree: Node) -> None:
    assert parse(written(tree)) == tree


@given(TREES)
def test_a_tree_has_a_type_or_is_refused(tree: Node) -> None:
    try:
        assert type_of(tree, COLUMNS).word
    except WrongExpression as error:
        assert error.reason
