"""SQL that means harm, made of pieces of it, and what must hold of each: it is refused, it is no
SQL, or it shows nothing but what a reader may see."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import chdb

from specscope.errors import QueryRefused
from specscope.service.guard import guarded
from specscope.store.connection import Store
from specscope.store.migrate import migrate

MARK = "m4rk-that-no-reader-may-see"

PIECES = """
SELECT FROM WHERE WITH AS UNION ALL EXCEPT INTERSECT ORDER BY GROUP HAVING LIMIT FORMAT SETTINGS IN
JOIN ON USING ARRAY FINAL SAMPLE PREWHERE OVER INTERVAL CAST DISTINCT SHOW TABLES DESCRIBE TABLE
EXPLAIN INSERT INTO OUTFILE VALUES DROP SYSTEM KILL QUERY SET CREATE ALTER EXISTS COLUMNS LIKE APPLY
REPLACE EXCEPT RECURSIVE WINDOW QUALIFY INTERPOLATE FILL TOTALS ROLLUP LATERAL PARALLEL TRUNCATE
( ) ( ) ( ) [ ] { } , , . . ; * * + - = :: : ? -> | || '' "" `` -- /* */ # $$ \\ \n \t @ %
1 0 -1 1e9 'a' 'round' 'TSV' `round` "round" round boot policy hour system.tables system.users
specscope.round default.t secret.t information_schema.tables numbers(2) values('a String', 'x')
file('{secret}') file('{secret}','LineAsString') url('http://127.0.0.1:1/') `{secret}` '{secret}'
merge('secret','t') remote('127.0.0.1',secret.t) view(SELECT * FROM secret.t) dictionary('secret.t')
secret . t `secret` . `t` "secret"."t" {x:Identifier} {x:String} {x:AggregateFunction(uniq,String)}
toString(1) count() sumMerge(x) uniqState(x) arrayMap(x->x,[1]) tuple(1,2) currentDatabase()
CAST(x,'AggregateFunction(uniq,String)') x::AggregateFunction(uniq,String)
concat('Aggregate','Function')
max_threads=1 readonly=0 final=1 format_schema='x' additional_table_filters={} TSV JSON CapnProto
""".split(" ")  # noqa: SIM905

WHOLE = (
    "SELECT 1", "SELECT count() FROM round FINAL", "WITH x AS (SELECT 1 AS y) SELECT y FROM x",
    "SELECT * FROM numbers(3) ORDER BY 1 LIMIT 1", "SELECT k FROM round ARRAY JOIN classes AS c",
    "SELECT CAST('1', 'UInt8'), '7'::UInt8", "SHOW TABLES", "DESCRIBE TABLE round",
    "SELECT a.seq FROM round AS a JOIN boot AS b USING (boot)", "SELECT 1 SETTINGS max_threads = 1",
    "SELECT * FROM file('{secret}', 'LineAsString')", "SELECT * FROM secret.t",
    "SELECT name FROM system.tables", "SELECT 1 UNION ALL SELECT 2", "SELECT file('{secret}')",
    "SELECT sum(number) OVER (ORDER BY number) FROM numbers(3)", "SELECT * EXCEPT x FROM boot",
    "SELECT 'a' IN (SELECT replica FROM boot)", "SELECT {x:String}", "SELECT 1 FORMAT JSON",
    "SELECT * FROM secret.t WHERE s = 'x' FORMAT TSV", "SELECT count() FROM merge('secret', 't')",
)  # fmt: skip


class Engine:
    """An embedded engine with a secret file and a secret database beside our own."""

    def __init__(self, folder: Path) -> None:
        self.secret = folder / "secret.txt"
        self.secret.write_text(MARK)
        with Store.open(f"chdb://{folder}/store") as store:
            migrate(store)
            store.command("CREATE DATABASE IF NOT EXISTS secret")
            store.command(
                "CREATE TABLE IF NOT EXISTS secret.t (s String) ENGINE = MergeTree ORDER BY s"
            )
            store.command(f"INSERT INTO secret.t VALUES ('{MARK}')")
            databases = store.rows("SELECT name FROM system.databases")
        self._databases = frozenset(row["name"].lower() for row in databases)
        self._connection: Any = chdb.connect(str(folder / "store"))
        self._connection.query("USE specscope")
        for name, value in {
            "max_execution_time": 2,
            "max_memory_usage": 1 << 28,
            "readonly": 1,
        }.items():
            self._connection.query(f"SET {name} = {value}")

    def statement(self, draw: random.Random) -> str:
        """A statement made of pieces, or a whole one with pieces put in, taken out or replaced."""
        if draw.random() < 0.3:
            words = ["SELECT", *draw.choices(PIECES, k=draw.randrange(1, 12))]
        else:
            words = draw.choice(WHOLE).split(" ")
            for _ in range(draw.choice((1, 1, 2, 3))):
                at = draw.randrange(len(words) + 1)
                words[at : at + draw.choice((0, 0, 1, 2))] = draw.choices(
                    PIECES, k=draw.choice((0, 1, 1, 2))
                )
        glue = draw.choice((" ", " ", " ", "", "/**/", "\n"))
        text = glue.join(words)
        if draw.random() < 0.1 and text:
            at = draw.randrange(len(text))
            text = (
                text[:at] + chr(draw.choice((0, 9, 39, 34, 96, 92, 59, 0x2018, 0xFF))) + text[at:]
            )
        return text.replace("{secret}", str(self.secret))

    def check(self, text: str) -> str:
        """Guard it, and run it if it may. Returns how it ended; raises if it shows a secret."""
        params = {"x": "secret"}

        def explain(sql: str) -> str:
            return self._run(f"EXPLAIN AST {sql}", "TSVRaw", params)

        try:
            parsed = guarded(text, explain, database="specscope", databases=self._databases)
        except QueryRefused:
            return "refused"
        except RuntimeError:
            return "no SQL"
        try:
            shown = self._run(parsed.sql, parsed.format or "TSVRaw", params)
        except RuntimeError as error:
            shown = str(error)
        # The statement's own words may come back in an answer or an error.
        assert MARK not in shown, text
        return "ran"

    def _run(self, sql: str, format_: str, params: dict[str, str]) -> str:
        try:
            answer: bytes = self._connection.query(sql, format_, params=params).bytes()
        except RuntimeError:
            for _ in range(3):
                if self._connection.query("SELECT 1", "TSV").bytes() == b"1\n":
                    break
            raise
        return answer.decode("utf-8", "replace")
