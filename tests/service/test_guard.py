"""Every way out of the read endpoint that we know of, tried on the real engine."""

from __future__ import annotations

from pathlib import Path

import chdb
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specscope.errors import QueryRefused
from specscope.service.guard import allowed, guarded, statement
from specscope.store.connection import Store
from specscope.store.migrate import migrate

DATABASES = frozenset({"specscope", "system", "information_schema", "default"})


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Guard a statement, and run it if it may, as the endpoint does."""
    path = tmp_path_factory.mktemp("guard") / "store"
    with Store.open(f"chdb://{path}") as store:
        migrate(store)
        connection = chdb.connect(str(store.path))
        connection.query("USE specscope")

        def run(sql: str, **params: str) -> str:
            def explain(text: str) -> str:
                return (
                    connection.query(f"EXPLAIN AST {text}", "TSVRaw", params=params)
                    .bytes()
                    .decode()
                )

            parsed = guarded(sql, explain, database="specscope", databases=DATABASES)
            return (
                connection.query(parsed.sql, parsed.format or "TSV", params=params).bytes().decode()
            )

        yield run
        connection.close()


SECRET = "/etc/hostname"

ESCAPES = {
    "a file as a scalar": f"SELECT file('{SECRET}')",
    "a file in upper case": f"SELECT FILE('{SECRET}')",
    "a file behind quotes": f"SELECT `file`('{SECRET}')",
    "a file behind a comment": f"SELECT file/**/('{SECRET}')",
    "a file in a subquery": f"SELECT * FROM (SELECT file('{SECRET}') AS x)",
    "a file in a CTE": f"WITH x AS (SELECT file('{SECRET}')) SELECT * FROM x",
    "a file in a WITH expression": f"WITH file('{SECRET}') AS x SELECT x",
    "a file in a lambda": f"SELECT arrayMap(x -> file(x), ['{SECRET}'])",
    "a file in ORDER BY": f"SELECT 1 AS a ORDER BY file('{SECRET}')",
    "a file in HAVING": f"SELECT count() FROM boot HAVING file('{SECRET}') != ''",
    "a file in a window": f"SELECT sum(1) OVER (ORDER BY file('{SECRET}'))",
    "a file in JOIN ON": f"SELECT 1 FROM boot AS a JOIN boot AS b ON a.boot = file('{SECRET}')",
    "a file in LIMIT": f"SELECT 1 LIMIT length(file('{SECRET}'))",
    "a file in IN": f"SELECT 1 IN (SELECT file('{SECRET}'))",
    "a file in a replaced column": f"SELECT * REPLACE (file('{SECRET}') AS boot) FROM boot",
    "a function applied to columns": f"SELECT * APPLY (file) FROM (SELECT '{SECRET}' AS x)",
    "a lambda applied to columns": f"SELECT * APPLY (x -> file(x)) FROM (SELECT '{SECRET}' AS x)",
    "a file after UNION": f"SELECT 'a' UNION ALL SELECT file('{SECRET}')",
    "a file after EXCEPT": f"SELECT 'a' EXCEPT SELECT file('{SECRET}')",
    "a file as a table": f"SELECT * FROM file('{SECRET}', 'LineAsString')",
    "a file as a table, aliased": f"SELECT * FROM file('{SECRET}', 'LineAsString') AS numbers",
    "a file by name": f"SELECT * FROM `{SECRET}`",
    "a file by a string": f"SELECT * FROM '{SECRET}'",
    "a file by name in IN": f"SELECT '' IN `{SECRET}`",
    "a file by a relative name": "SELECT * FROM `store.csv`",
    "an address": "SELECT * FROM url('http://127.0.0.1:1/', 'LineAsString')",
    "a bucket": "SELECT * FROM s3('http://127.0.0.1:1/b/k', 'LineAsString')",
    "another server": "SELECT * FROM remote('127.0.0.1:1', system.one)",
    "another server, secure": "SELECT * FROM remoteSecure('127.0.0.1:1', system.one)",
    "a cluster": "SELECT * FROM cluster('default', system.one)",
    "a program": "SELECT * FROM executable('id', 'TSV', 'x String')",
    "Python": "SELECT * FROM Python(x)",
    "python in lower case": "SELECT * FROM python(x)",
    "SQL in a string": "SELECT * FROM eval('SELECT 1')",
    "a model": "SELECT aiGenerate('say something')",
    "a MySQL server": "SELECT * FROM mysql('127.0.0.1:1', 'd', 't', 'u', 'p')",
    "a PostgreSQL server": "SELECT * FROM postgresql('127.0.0.1:1', 'd', 't', 'u', 'p')",
    "a SQLite file": f"SELECT * FROM sqlite('{SECRET}', 't')",
    "a MongoDB server": "SELECT * FROM mongodb('127.0.0.1:1', 'd', 'c', 'u', 'p', 'x Int8')",
    "a Redis server": "SELECT * FROM redis('127.0.0.1:1', 'k', 'k String, v String')",
    "an ODBC source": "SELECT * FROM odbc('DSN=x', 'd', 't')",
    "a JDBC source": "SELECT * FROM jdbc('jdbc:x', 'd', 't')",
    "HDFS": "SELECT * FROM hdfs('hdfs://127.0.0.1:1/x', 'TSV')",
    "a lake": "SELECT * FROM icebergLocal('/tmp/x')",
    "merge over system tables": "SELECT * FROM merge('system', '.*')",
    "a view": "SELECT * FROM view(SELECT 1)",
    "a view with parameters": "SELECT * FROM some_view(x = 1)",
    "a dictionary as a table": "SELECT * FROM dictionary('x')",
    "a dictionary": "SELECT dictGet('x', 'y', 1)",
    "a dictionary's keys": "SELECT dictHas('x', 1)",
    "a join table": "SELECT joinGet('x', 'y', 1)",
    "a loop": "SELECT * FROM loop(numbers(1))",
    "the input": "SELECT * FROM input('x Int8')",
    "parts of a table": "SELECT * FROM mergeTreeIndex('specscope', 'round')",
    "a null sink": "SELECT * FROM null('x Int8')",
    "an output file": "SELECT 1 INTO OUTFILE '/tmp/specscope-escaped'",
    "an output file, appended": "SELECT 1 INTO OUTFILE '/tmp/specscope-escaped' APPEND",
    "an output file and a format": "SELECT 1 INTO OUTFILE '/tmp/specscope-escaped' FORMAT CSV",
    "an output file in brackets": "(SELECT 1) INTO OUTFILE '/tmp/specscope-escaped'",
    "a described address": "DESCRIBE url('http://127.0.0.1:1/')",
    "a described file": f"DESC file('{SECRET}')",
    "an explained query": "EXPLAIN SELECT 1",
    "an explained pipeline": f"EXPLAIN PIPELINE SELECT file('{SECRET}')",
    "the estimate of a query": "EXPLAIN ESTIMATE SELECT 1",
    "a killed query": "KILL QUERY WHERE 1",
    "a system command": "SYSTEM SHUTDOWN",
    "a made table": "CREATE TABLE t (x Int8) ENGINE = Memory",
    "a made function": "CREATE FUNCTION f AS x -> x",
    "a dropped table": "DROP TABLE round",
    "an emptied table": "TRUNCATE TABLE round",
    "a changed table": "ALTER TABLE round DELETE WHERE 1",
    "deleted rows": "DELETE FROM round WHERE 1",
    "inserted rows": "INSERT INTO policy (policy) VALUES (1)",
    "inserted rows of a SELECT": "INSERT INTO policy (policy) SELECT 1",
    "an insert behind a CTE": "WITH x AS (SELECT 1) INSERT INTO policy (policy) SELECT * FROM x",
    "an insert into a file": "INSERT INTO FUNCTION file('/tmp/specscope-escaped') SELECT 1",
    "a backup": "BACKUP TABLE round TO File('/tmp/specscope-escaped')",
    "an attached table": "ATTACH TABLE t FROM '/tmp' (x Int8) ENGINE = File(TSV)",
    "a setting": "SET readonly = 0",
    "a setting in the query": "SELECT 1 SETTINGS readonly = 0",
    "a setting in a subquery": "SELECT * FROM (SELECT 1 SETTINGS max_execution_time = 0)",
    "a setting after the format": "SELECT 1 FORMAT TSV SETTINGS readonly = 0",
    "a setting between harmless ones": "SELECT 1 SETTINGS max_threads = 1, format_schema = 'x'",
    "a harmless setting twice over": "SELECT 1 SETTINGS final = 1 SETTINGS readonly = 0",
    "a file that a setting writes": "SELECT 1 SETTINGS output_format_schema = '/tmp/x'",
    "a setting of one of two": "SELECT 1 SETTINGS readonly = 0 UNION ALL SELECT 2",
    "a schema from a file": "SELECT 1 FORMAT Protobuf SETTINGS format_schema = '/etc/x:M'",
    "a format that reads a schema": "SELECT 1 FORMAT CapnProto",
    "a format that reads a template": "SELECT 1 FORMAT Template",
    "another database": "USE system",
    "a transaction": "BEGIN TRANSACTION",
    "grants": "GRANT ALL ON *.* TO default",
    "what is granted": "SHOW GRANTS",
    "what runs": "SHOW PROCESSLIST",
    "what there is": "SHOW TABLES FROM system",
    "how another database was made": "SHOW CREATE DATABASE system",
    "how the users' table was made": "SHOW CREATE TABLE system.users",
    "columns of another database": "SHOW COLUMNS FROM t FROM default",
    "columns of the users": "SHOW COLUMNS FROM users FROM system",
    "a described system table": "DESCRIBE TABLE system.users",
    "a described file by name": f"DESCRIBE TABLE `{SECRET}`",
    "a described file by a string": f"DESCRIBE '{SECRET}'",
    "a described subquery": f"DESCRIBE (SELECT file('{SECRET}'))",
    "a described function": "DESCRIBE numbers(1)",
    "tables of another database": "SHOW TABLES IN default",
    "tables with a condition": "SHOW TABLES WHERE sleep(3)",
    "a second statement behind SHOW": "SHOW TABLES; DROP TABLE round",
    "SHOW into a file": "SHOW TABLES INTO OUTFILE '/tmp/specscope-escaped'",
    "settings by SHOW": "SHOW SETTINGS LIKE '%'",
    "accounts by SHOW": "SHOW USERS",
    "clusters by SHOW": "SHOW CLUSTERS",
    "a check of a table": "CHECK TABLE round",
    "a watched view": "WATCH x",
    "a prepared statement": "EXECUTE AS default SELECT 1",
    "the value of a setting": "SELECT getSetting('max_threads')",
    "the value of a server setting": "SELECT getServerSetting('path')",
    "a macro": "SELECT getMacro('replica')",
    "the host's name": "SELECT hostName()",
    "the host's full name": "SELECT FQDN()",
    "an address looked up": "SELECT reverseDNSQuery('127.0.0.1')",
    "time, wasted": "SELECT sleep(3)",
    "time, wasted by row": "SELECT sleepEachRow(1) FROM numbers(3)",
    "disk space": "SELECT filesystemAvailable()",
    "symbols of the program": "SELECT demangle('x')",
    "a certificate": "SELECT showCertificate()",
    "a state from text": "SELECT sumMerge(CAST('x', 'AggregateFunction(sum, UInt8)'))",
    "a state, finished": "SELECT finalizeAggregation(CAST('x', 'AggregateFunction(sum, UInt8)'))",
    "a state by ::": "SELECT unhex('00')::AggregateFunction(uniq, String)",
    "a state in an array": "SELECT CAST([unhex('00')], 'Array(AggregateFunction(uniq, String))')",
    "a state behind an escape": "SELECT CAST('x', 'Aggregate\\x46unction(uniq, String)')",
    "a state behind a quoted name": "SELECT 'x'::`Aggregate\\x46unction`(uniq, String)",
    "a state by a computed type": "SELECT CAST('x', concat('Aggregate', 'Function(uniq, String)'))",
    "a state by a named type": "WITH concat('Aggregate', 'Function(uniq, String)') AS t "
    "SELECT CAST('x', t)",
    "a state of a parameter": "SELECT {x:AggregateFunction(groupBitmap, UInt32)}",
    "a state of a parameter, quoted": "SELECT {x:`Aggregate\\x46unction`(groupBitmap, UInt32)}",
    "a state from JSON": "SELECT JSONExtract('{}', 'a', 'AggregateFunction(uniq, String)')",
    "a state from JSON, computed": "SELECT JSONExtract('{}', concat('Aggregate', "
    "'Function(uniq, String)'))",
    "a state in a row": "SELECT * FROM values('a AggregateFunction(uniq, String)', 'x')",
    "a state in a computed type": "SELECT * FROM values(concat('a Aggregate', 'Function(uniq, "
    "String)'), 'x')",
    "a state's default": "SELECT defaultValueOfTypeName('AggregateFunction(uniq, String)')",
    "a state that reduces": "SELECT arrayReduce('uniqMerge', [unhex('00')])",
    "a state that reduces ranges": "SELECT arrayReduceInRanges('uniqMerge', [(1, 1)], ['x'])",
    "a state of a simple function": "SELECT CAST(1, 'SimpleAggregateFunction(sum, UInt64)')",
    "a plan that doubles": "WITH a0 AS (SELECT 1 AS x), "
    + ", ".join(f"a{i} AS (SELECT l.x FROM a{i - 1} AS l, a{i - 1} AS r)" for i in range(1, 14))
    + " SELECT count() FROM a13",
    "columns that multiply": "SELECT * FROM "
    + "(SELECT *, *, * FROM " * 5
    + "(SELECT 1 AS a)"
    + ")" * 5,
    "very many words": "SELECT " + "1," * 30_000 + "1",
    "a condition before the filter": "SELECT count() FROM round PREWHERE k = 1",
    "a pattern of very many states": "SELECT match('a', '([ab]{1,500}){1,2}c')",
    "patterns within a pattern": "SELECT extract('a', '((a{20}){20}){2}')",
    "a pattern that is computed": "SELECT match('a', concat('a', 'b'))",
    "a pattern for each row": "SELECT name LIKE name FROM system.functions",
    "a long pattern": f"SELECT replaceRegexpAll('a', '{'(a|b)' * 100}', '')",
    "a pattern of blanks to fill": f"SELECT 'a' LIKE '%{'_' * 101}b'",
    "a splitting pattern": "SELECT splitByRegexp('(a{200})?', 'a')",
    "a long needle": f"SELECT position('a', '{'a' * 301}')",
    "a needle that is computed": "SELECT position(repeat('a', 9), concat(repeat('a', 8), 'b'))",
    "a needle for each row": "SELECT replaceAll(name, name, '') FROM system.functions",
    "a computed needle under another name": "SELECT instr(repeat('a', 9), repeat('a', 8))",
    "a computed separator": "SELECT splitByString(repeat('a', 8), repeat('a', 9))",
    "very many needles": "SELECT multiSearchAny('a', range(9)::Array(String))",
    "a fold, which no limit interrupts": "SELECT arrayFold((a, x) -> a + x, range(9), 0)",
    "a value with a column for each key": "SELECT '{}'::JSON",
    "the same by a name": "SELECT CAST('{}', 'Array(JSON(max_dynamic_paths=9999))')",
    "the same of a row": "SELECT * FROM values('a Dynamic', 1)",
    "the same from JSON": "SELECT JSONExtract('{}', 'a', 'Variant(String, UInt8)')",
    "conditions whose plan takes minutes": "SELECT 1 WHERE "
    + " AND ".join(f"(1 = {i} OR 1 = {i + 1})" for i in range(400)),
    "very many levels": f"SELECT quantilesExact({','.join(['0.5'] * 101)})(1)",
    "a log line": "SELECT logTrace('x')",
    "the processes": "SELECT * FROM system.processes",
    "the processes behind quotes": 'SELECT * FROM "system"."processes"',
    "the users": "SELECT * FROM system.users",
    "the log of queries": "SELECT * FROM system.query_log",
    "a file of the logs": "SELECT * FROM system.text_log",
    "keys of the named": "SELECT * FROM system.named_collections",
    "the environment": "SELECT * FROM system.server_settings",
    "a system table in IN": "SELECT 1 IN system.users",
    "a system table in a join": "SELECT * FROM boot JOIN system.users USING (boot)",
    "a system table behind a CTE": "WITH x AS (SELECT * FROM system.users) SELECT * FROM x",
    "information_schema": "SELECT * FROM information_schema.tables",
    "another database's table": "SELECT * FROM default.t",
    "two statements": "SELECT 1; SELECT 2",
    "two statements and a comment": "SELECT 1 -- ;\n; DROP TABLE round",
    "a statement behind a semicolon": ";SELECT 1",
    "a statement in a comment's shade": "SELECT 1 /* ; */ ; DROP TABLE round",
    "a statement behind a quote": "SELECT '\\'' ; DROP TABLE round --'",
    "a statement behind typographic quotes": "SELECT ‘ ' ’ ; DROP TABLE round --'",
    "a statement behind a heredoc": "SELECT $a$ ' $a$ ; DROP TABLE round --'",
    "a statement behind a zero byte": "SELECT 1\0; DROP TABLE round",
    "a statement behind a hash": "SELECT 1 # ' \n ; DROP TABLE round --'",
    "a comment without end": "SELECT 1 /* ",
    "a quote without end": "SELECT 'a",
    "settings of EXPLAIN": "optimize = 0 SELECT 1",
    "settings of EXPLAIN, graph": "graph = 1 SELECT 1",
    "a name with a line in it": "SELECT `a\n  Literal`",
    "nothing": "",
    "a blank": "  \n ",
    "a comment alone": "-- SELECT 1",
}


@pytest.mark.parametrize("name", ESCAPES)
def test_a_known_escape_is_refused(run, name):
    with pytest.raises(QueryRefused):
        run(ESCAPES[name])

    assert not Path("/tmp/specscope-escaped").exists()


@pytest.mark.parametrize("type_", ["Identifier", "String"])
def test_a_bound_parameter_cannot_name_what_the_text_may_not(run, type_):
    with pytest.raises((QueryRefused, RuntimeError)):
        run(f"SELECT * FROM {{db:{type_}}}.{{t:{type_}}}", db="system", t="users")


def test_a_bound_parameter_is_a_value_and_never_sql(run):
    text = "1'; DROP TABLE round; --"

    assert run("SELECT {x:String} = {y:String}", x=text, y=text) == "1\n"


ALLOWED = {
    "SELECT 1": "1\n",
    "select 1;": "1\n",
    "SELECT 1 FORMAT JSONEachRow": '{"1":1}\n',
    "SELECT 1 AS a FORMAT CSVWithNames": '"a"\n1\n',
    "(SELECT 1)": "1\n",
    "WITH 2 AS x SELECT x": "2\n",
    "WITH x AS (SELECT 3 AS y) SELECT y FROM x": "3\n",
    "FROM numbers(2) SELECT max(number)": "1\n",
    "SELECT 'a;b' -- a comment; with a semicolon": "a;b\n",
    "SELECT /* one; */ 1": "1\n",
    "SELECT 'it''s', 'it\\'s', `a``b` FROM (SELECT 1 AS `a``b`)": "it\\'s\tit\\'s\t1\n",
    "SELECT count() FROM round FINAL": "0\n",
    "SELECT count() FROM specscope.round": "0\n",
    "SELECT count() FROM request_part ARRAY JOIN k AS x WHERE x > 1": "0\n",
    "SELECT sumForEach(tested), sumMap(gap_bins, gap_counts) FROM (SELECT [1] AS tested, "
    "[toInt16(1)] AS gap_bins, [2] AS gap_counts)": "[1]\t([1],[2])\n",
    "SELECT quantile(0.5)(number), countIf(number > 1), uniqExactIf(number, 1) FROM numbers(3)": (
        "1\t1\t3\n"
    ),
    "SELECT name FROM system.tables WHERE database = 'specscope' AND name = 'hour'": "hour\n",
    "SELECT count() > 100 FROM system.settings": "1\n",
    "SELECT number, sum(number) OVER (ORDER BY number) FROM numbers(2)": "0\t0\n1\t1\n",
    "SELECT 1 UNION ALL SELECT 1": "1\n1\n",
    "SELECT CASE WHEN 1 THEN 'a' ELSE 'b' END, if(1, 2, 3), 1 IN (1, 2), -1, [1][1]": (
        "a\t2\t1\t-1\t1\n"
    ),
    "SELECT toStartOfMinute(toDateTime('2026-01-01 00:00:30', 'UTC')) + INTERVAL 1 DAY": (
        "2026-01-02 00:00:00\n"
    ),
    "SELECT * EXCEPT b FROM (SELECT 1 AS a, 2 AS b)": "1\n",
    "SELECT count(DISTINCT number) FROM numbers(3)": "3\n",
    "SELECT a FROM (SELECT 1 AS a) WHERE EXISTS (SELECT 1)": "1\n",
    "SELECT '7'::UInt8, CAST([1], 'Array(Float64)'), JSONExtract('{\"a\":1}', 'a', 'UInt8')": (
        "7\t[1]\t1\n"
    ),
    "SELECT * FROM values('a UInt8, b String', (1, 'x'), (2, 'y'))": "1\tx\n2\ty\n",
    "SELECT 'json', 'dynamic', quantiles(0.1, 0.9)(number) FROM numbers(1)": (
        "json\tdynamic\t[0,0]\n"
    ),
    "SELECT match('ab', '^a{1,3}b$'), 'a_b' LIKE 'a__', extract('k4', 'k([0-9]+)')": ("1\t1\t4\n"),
    "SHOW DATABASES LIKE 'spec%'": "specscope\n",
    "SHOW TABLES LIKE 'hour'": "hour\n",
    "show tables from specscope like 'hou%' limit 1;": "hour\n",
    "EXISTS TABLE specscope.round": "1\n",
    "EXISTS `no_such_table`": "0\n",
    "SELECT 1 SETTINGS max_threads = 1, join_use_nulls = 1": "1\n",
    "SELECT 1 AS a SETTINGS final = 1 FORMAT JSONEachRow": '{"a":1}\n',
    "SELECT 1 AS a FORMAT JSONEachRow SETTINGS output_format_json_quote_64bit_integers = 0": (
        '{"a":1}\n'
    ),
    "SELECT sum(number) FROM numbers(4) GROUP BY number % 2 WITH TOTALS ORDER BY 1 LIMIT 1": (
        "2\n\n6\n"
    ),
}


@pytest.mark.parametrize("sql", ALLOWED)
def test_what_people_ask_of_telemetry_runs(run, sql):
    assert run(sql) == ALLOWED[sql]


def test_every_quantity_of_ours_may_be_asked(run):
    import inspect

    from specscope import queries

    functions = [
        function
        for name, function in inspect.getmembers(queries, inspect.isfunction)
        if not name.startswith("_")
    ]

    assert len(functions) > 10
    for function in functions:
        run(function())


BROWSING = """
DESCRIBE TABLE round
DESC specscope.round
DESCRIBE `specscope`."round" FORMAT TSVWithNamesAndTypes
SHOW COLUMNS FROM round
SHOW FULL COLUMNS FROM round FROM specscope LIKE 'k%'
SHOW FULL FIELDS IN specscope.round
SHOW CREATE TABLE round
SHOW CREATE specscope.round
DESCRIBE TABLE system.tables
SELECT version(), timezone(), currentUser()
SELECT currentUser() AS user, timezone() AS timezone, version() AS version LIMIT 1
SELECT name, value, changed, description, min, max, readonly, type FROM system.settings
SELECT name, engine, total_rows, comment FROM system.tables WHERE database = 'specscope'
SELECT database, table, name, type, comment, position FROM system.columns WHERE table = 'round'
SELECT name FROM system.table_engines
SELECT name, case_insensitive, alias_to FROM system.data_type_families
SELECT name, is_aggregate FROM system.functions
SELECT name FROM system.databases
"""


@pytest.mark.parametrize("sql", BROWSING.strip().split("\n"))
def test_what_sql_clients_ask_to_show_the_schema_may_be_asked(run, sql):
    assert run(sql)


def test_what_clients_ask_first_may_be_asked(run):
    assert run("SELECT version(), timezone()")
    assert run("SELECT name, value, readonly FROM system.settings LIMIT 10000")
    assert run("SELECT 1 AS check FORMAT Native")


def test_no_function_that_leaves_the_engine_or_does_not_end_is_on_the_list():
    names = {name.lower() for name in allowed("functions")}

    leaving = """file url s3 remote hostname fqdn getsetting getmacro getserversetting dictget
        joinget sleep sleepeachrow filesystemavailable showcertificate python chdb
        editdistance editdistanceutf8 jarosimilarity jarowinklersimilarity arraysimilarity
        jsonmergepatch prettyprintjson hasany hasall hassubstr arrayreduce arrayreduceinranges
        executable reversednsquery aigenerate initializeaggregation finalizeaggregation
        catboostevaluate demangle addresstoline tcpport serveruuid"""
    assert not names & set(leaving.split())


def test_a_function_of_another_name_is_judged_as_what_it_stands_for(run):
    listed = {name.lower() for name in allowed("functions")}
    judged = [
        allowed(what) for what in ("typed functions", "pattern functions", "needle functions")
    ]
    aliases = run(
        "SELECT lower(name), lower(alias_to) FROM system.functions WHERE alias_to != ''"
    ).splitlines()

    pairs = [pair for pair in (line.split("\t") for line in aliases) if pair[0] in listed]
    assert len(pairs) > 50
    for alias, name in pairs:
        for some in judged:
            assert (alias in some) == (name in some), (alias, name)


def test_every_listed_name_is_one_that_the_engine_has(run):
    known = run("SELECT lower(name) FROM system.functions").split()
    formats = run("SELECT 1 IN (1)") and allowed("formats")
    by_syntax = {"lambda", "exists", "countdistinct", "untuple", "grouping"}

    assert {n.lower() for n in allowed("functions")} - set(known) - by_syntax == set()
    assert "Native" in formats


@given(st.text(max_size=60))
def test_no_text_makes_the_tokeniser_fail_otherwise_than_by_refusal(text):
    try:
        parsed = statement(text)
    except QueryRefused:
        return
    assert parsed.sql in text


@given(st.text("'\"`;-/*\\\n Ax1$#", max_size=30))
def test_a_semicolon_outside_quotes_and_comments_never_passes(tail):
    try:
        parsed = statement("SELECT 1 " + tail)
    except QueryRefused:
        return
    assert ";" not in _bare(parsed.sql)


def _bare(sql: str) -> str:
    """The text without quotes and comments, by a second, character-wise reading."""
    bare, at = "", 0
    while at < len(sql):
        if sql.startswith("--", at):
            at = len(sql) if (end := sql.find("\n", at)) < 0 else end
        elif sql.startswith("/*", at):
            at = sql.index("*/", at) + 2
        elif sql[at] in "'\"`":
            quote, at = sql[at], at + 1
            while sql[at] != quote:
                at += 2 if sql[at] == "\\" else 1
            at += 1
        else:
            bare, at = bare + sql[at], at + 1
    return bare
