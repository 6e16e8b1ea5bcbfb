"""What the sweep of functions calls them with: kinds of arguments, tiny and as large as may be."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of argument: an expression over `number`, tiny and as large as readers make it."""

    tiny: str
    huge: tuple[str, ...]


def _kind(tiny: str, *huge: str) -> Kind:
    return Kind(tiny, huge or (tiny,))


TEXT = "concat(repeat('{}', {}), toString(number))"
TEXTS = tuple(TEXT.format(*piece) for piece in (("a", 65000), ("ab ,c=1;", 8000), ("{0}", 20000)))
BIG = ("18446744073709551615 - number", "toInt64(-1)", "1000000000")
KINDS = {
    "text": _kind("concat('ab', toString(number))", *TEXTS),
    "needle": _kind(
        "'a'",
        "concat(repeat('a', 32000), 'b')",
        "concat(repeat('a', 32000), 'b', toString(number))",
    ),
    "constant": _kind("'a'", "'" + "ab" * 30000 + "'"),
    "number": _kind("number + 1", *BIG),
    "whole": _kind("1", "1000000000", "9223372036854775807", "-1"),
    "small": _kind("3", "255"),
    "float": _kind("0.5", "1e300", "nan"),
    "numbers": _kind("[1, 2, number]", "range(100000 + number)"),
    "floats": _kind("[0.5, 1.5]", "arrayMap(x -> x * 0.7, range(100000 + number))"),
    "texts": _kind("['a', 'b']", "arrayMap(x -> concat('ab', toString(x)), range(20000 + number))"),
    "nested": _kind("[[1, 2], [3]]", "arrayMap(x -> range(300), range(300 + number))"),
    "pairs": _kind(
        "[(0., 0.), (1., 1.), (1., 0.)]",
        "arrayMap(x -> (sin(x) * 50, cos(x) * x / 900), range(20000))"
    ),
    "map": _kind(
        "map('a', 1)",
        "mapFromArrays(arrayMap(x -> toString(x), range(20000 + number)), range(20000 + number))",
    ),
    "tuple": _kind("(1, number)"),
    "named": _kind("(1, (2, 'a'))::Tuple(a UInt64, b Tuple(c UInt64, d String))"),
    "same": _kind("x -> x", "x -> x"),
    "holds": _kind("x -> x > 1"),
    "both": _kind("(x, y) -> x + y"),
    "entry": _kind("(k, v) -> (k, v)"),
    "entryholds": _kind("(k, v) -> v > 0"),
    "date": _kind("toDate('2026-01-01')", "toDate(number)"),
    "time": _kind("toDateTime('2026-01-01 00:00:00')", "toDateTime(number)"),
    "time64": _kind("toDateTime64('2026-01-01 00:00:00', 3)"),
    "interval": _kind("toIntervalDay(1)", "toIntervalSecond(number + 1)"),
    "unit": _kind("'day'", "'nanosecond'"),
    "zone": _kind("'UTC'"),
    "type": _kind("'String'", "'Array(UInt64)'"),
    "groups": _kind("'(a)'", "'(a|b)+(c)'"),
    "pattern": _kind("'a'", "'(a|b)+c'", "'%a%b%c%'"),
    "json": _kind(
        "'{\"a\": [1, {\"b\": 2}]}'",
        "concat('{\"a\": [', repeat('{\"b\": [1, 2]}, ', 4000), toString(number), ']}')",
        "concat(repeat('[', 30000), toString(number))",
    ),
    "path": _kind("'$.a'", "concat('$', repeat('..*', 8))"),
    "digits": _kind("toString(number)", "repeat('9', 65000 + number)"),
    "moment": _kind("'2026-01-01 00:00:00'", TEXTS[0]),
    "uuid": _kind("toUUID('61f0c404-5cb3-11e7-907b-a6006ad3dba0')"),
    "ipv4": _kind("toIPv4('127.0.0.1')"),
    "ipv6": _kind("toIPv6('::1')"),
    "decimal": _kind("toDecimal64(1.5, 3)", "toDecimal256(number, 50)"),
    "fixed": _kind("toFixedString('abcd', 4)", "toFixedString(repeat('a', 60000), 60000)"),
    "object": _kind("'{\"a\": 1}'::JSON", "concat('{', arrayStringConcat(arrayMap(x -> concat("
                    "'\"k', toString(x), '\":1'), range(900)), ','), '}')::JSON"),
    "dynamic": _kind("1::Dynamic"),
    "variant": _kind("1::Variant(UInt64, String)"),
    "bool": _kind("true"),
    "null": _kind("NULL"),
    "pair": _kind("(number, number + 1)::Tuple(a UInt64, b UInt64)"),
    "low": _kind(
        "toLowCardinality(toString(number))",
        "toLowCardinality(concat(repeat('ab', 30000), toString(number)))",
    ),
    "bitmap": _kind("bitmapBuild([1, 2, 3])", "bitmapBuild(range(100000 + number))"),
    "geometry": _kind("'POINT (0 0)'", "concat('LINESTRING (', repeat('1 1, ', 20000), '2 2)')"),
    "address": _kind("'http://a.b/c?d=e#f'",
                     "concat('http://', repeat('a.', 30000), '/?', repeat('b=c&', 9000))"),
}  # fmt: skip

# Words of the engine's own page on an argument, and the kinds that they may mean, likeliest first.
WORDS = (
    ("lambda", ("same", "holds", "both", "entry", "entryholds")),
    ("map(", ("map",)),
    ("array", ("numbers", "texts", "floats", "nested", "pairs", "map")),
    ("tuple", ("tuple", "pairs")),
    ("map", ("map",)),
    ("pattern", ("pattern",)),
    ("regex", ("pattern",)),
    ("unit", ("unit", "constant")),
    ("json", ("json", "object")),
    ("path", ("path", "text")),
    ("timezone", ("zone",)),
    ("time zone", ("zone",)),
    ("interval", ("interval", "number")),
    ("datetime64", ("time64", "time", "moment")),
    ("datetime", ("time", "time64", "date")),
    ("date", ("date", "time")),
    ("polygon", ("pairs", "geometry")),
    ("geo", ("geometry", "pairs", "float")),
    ("url", ("address", "text")),
    ("string", ("text", "needle", "constant", "digits", "json", "moment", "fixed", "type", "unit")),
    ("float", ("float", "number", "whole")),
    ("decimal", ("decimal", "float")),
    ("int", ("number", "whole", "small")),
    ("numeric", ("number", "float")),
    ("uuid", ("uuid",)),
    ("ipv4", ("ipv4",)),
    ("ipv6", ("ipv6",)),
    ("bitmap", ("bitmap",)),
    ("aggregatefunction", ("bitmap",)),
    ("bool", ("bool",)),
    ("any", ("number", "text", "numbers")),
)
# Of functions whose page does not say it.
_SPANS = [("unit", "date", "date"), ("unit", "time", "time"), ("unit", "date", "time")]
_STARTS = [("unit", "date"), ("unit", "time")]
_CHOICES = [
    ("small", "text", "text"),
    ("small", "numbers", "numbers"),
    ("small", "number", "whole"),
]
_CASES = [("number", "whole", "text", "text"), ("text", "needle", "texts", "texts")]
_PUSHES = [("numbers", "number"), ("texts", "text"), ("nested", "numbers")]
KNOWN: dict[str, list[tuple[str, ...]]] = {
    "arrayfold": [("both", "numbers", "number"), ("both", "texts", "text")],
    **dict.fromkeys(("date_diff", "datediff", "timestamp_diff", "timestampdiff"), _SPANS),
    **dict.fromkeys(("date_trunc", "datetrunc"), _STARTS),
    **dict.fromkeys(("if", "casewithoutexpr", "casewithoutexpression"), _CHOICES),
    **dict.fromkeys(("casewithexpr", "casewithexpression"), _CASES),
    **dict.fromkeys(("arraypushback", "arraypushfront"), _PUSHES),
    "bitslice": [("text", "whole"), ("text", "whole", "small"), ("fixed", "whole", "whole")],
    "flattentuple": [("named",)],
    "tupletonamevaluepairs": [("pair",)],
    "lowcardinalityindices": [("low",)],
    "lowcardinalitykeys": [("low",)],
    "multiif": [("bool", "text", "text"), ("bool", "numbers", "bool", "numbers", "numbers")],
    "totimezone": [("time", "zone"), ("time64", "zone")],
    "width_bucket": [
        ("number", "float", "number", "whole"),
        ("number", "small", "number", "small"),
    ],
    "extractgroups": [("text", "groups"), ("digits", "groups")],
}
LEVELS = (
    "", "(0.5)", "(3)", "(1, 3)", "('a')", "(3, 'a')", "(0.1, 0.9)", "(2, 0.5)",
    "(10, 0.01)", "(1, 5, 1)",
)  # fmt: skip
HUGE_LEVELS = {
    "(3)": ("(1000000)", "(65536)", "(4294967295)"),
    "(1, 3)": ("(1, 1000000)", "(1000000, 1000000)"),
    "(1, 5, 1)": ("(0, 1000000, 1)",),
    "(2, 0.5)": ("(1000000, 0.5)",),
    "('a')": ("('" + "a," * 30000 + "')",),
}
