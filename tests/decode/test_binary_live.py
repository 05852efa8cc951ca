"""PostgreSQL is the oracle: the same WAL read in text and in binary gives the same text and the same lake values."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import psycopg
import pyarrow as pa
import pytest
from pydantic import SecretStr

from spark_jobs.decode.binary.cast import cast_binary, text_of_binary
from spark_jobs.decode.binary.value_text import value_text
from spark_jobs.decode.values import Fitted, OnUnrepresentable, cast_text
from spark_jobs.errors import CdcError
from spark_jobs.logicalrep.messages import BinaryValue, Insert
from spark_jobs.logicalrep.pgoutput.read_message import read_message
from spark_jobs.postgres.catalogue import relation_facts
from spark_jobs.postgres.connection import connected
from spark_jobs.postgres.session_settings import PIN_STATEMENT
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.schema.relation_facts import RelationFacts
from spark_jobs.schema.table_shape import LakeColumn, TableShape
from spark_jobs.schema.wire_type import unreadable_in_binary
from tests.decode.binary_samples import PREPARATION, SAMPLES, Sample
from tests.fixtures.server_binaries import VERSIONS
from tests.fixtures.servers import Database, each_version, fresh_database

pytestmark = pytest.mark.postgres

Values = dict[int, list[object]]  # by relid, in order


@pytest.fixture(params=each_version(VERSIONS[-1]))
def database(request: pytest.FixtureRequest) -> Iterator[Database]:
    """By day of the newest server, which has all samples."""
    with fresh_database(request.getfixturevalue(f"postgres_{request.param}")) as database:
        yield database


def test_both_forms_give_the_same(database: Database) -> None:
    version = database.server.version
    samples = {f"t{number}": sample for number, sample in enumerate(SAMPLES) if sample.since <= version}
    database.execute(*PREPARATION)
    for name, sample in samples.items():
        database.execute(f"CREATE TABLE {name} (id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY, v {sample.type_name})")
    begin_capture(database)
    for name, sample in samples.items():
        insert(database, name, sample)
    texts, binaries = inserted(database, binary=False), inserted(database, binary=True)
    facts = landed_facts(database, list(samples))
    wrong: list[str] = []
    for name, sample in samples.items():
        assert not unreadable_in_binary(facts[name]), sample.type_name
        column = TableShape.of(facts[name]).columns[1]
        wrong += differences(sample, column, texts[facts[name].relid], binaries[facts[name].relid])
    assert not wrong, "\n".join(wrong)


def insert(database: Database, name: str, sample: Sample) -> None:
    with database.connect() as connection:
        connection.execute(PIN_STATEMENT.replace("'search_path', ''", "'search_path', 'public'"))
        query = f"INSERT INTO {name} (v) SELECT v::text::{sample.type_name} FROM ({sample.query}) AS s(v)"
        try:
            connection.execute(query)
        except psycopg.Error as error:
            raise AssertionError(f"sample {sample.type_name}: {error}") from error
        connection.execute(f"INSERT INTO {name} (v) VALUES (NULL)")


def differences(sample: Sample, column: LakeColumn, texts: list[object], binaries: list[object]) -> list[str]:
    in_text = [value if isinstance(value, bytes) else None for value in texts]
    in_binary = [value.data if isinstance(value, BinaryValue) else None for value in binaries]
    assert [value is None for value in in_text] == [value is None for value in in_binary]
    wrong = []
    known = column.binary_type
    for text, data in zip(in_text, in_binary, strict=True):
        if data is not None and text is not None:
            got = value_text(data, known)
            if got != text.decode():
                wrong.append(
                    f"{sample.type_name}: {got[:200]!r} instead of {text.decode()[:200]!r} from {data.hex()[:200]}"
                )
    text_column, binary_column = pa.array(in_text, pa.binary()), pa.array(in_binary, pa.binary())
    rendered = text_of_binary(binary_column, known, name="v", table="t")
    if not rendered.equals(text_column):
        wrong.append(f"{sample.type_name}: text_of_binary")
    policies: tuple[OnUnrepresentable, ...] = ("null", "error")
    for policy in policies:
        from_text = outcome(partial(cast_text, text_column, column.lake_type), policy)
        from_binary = outcome(partial(cast_binary, binary_column, known, column.lake_type), policy)
        if from_binary != from_text:
            wrong.append(f"{sample.type_name}: cast_binary, {policy}")
    return wrong


def outcome(cast: Callable[..., Fitted], policy: OnUnrepresentable) -> object:
    """What the cast gives, NaN made comparable; or its error."""
    try:
        fitted = cast(name="v", table="t", on_unrepresentable=policy)
    except CdcError as error:
        return type(error), str(error)
    result, misfits = fitted.values, fitted.misfits
    result.validate(full=True)
    comparable = result.cast(pa.int64()) if pa.types.is_timestamp(result.type) else result
    return [repr(value) for value in comparable.to_pylist()], None if misfits is None else misfits.to_pylist()


def begin_capture(database: Database) -> None:
    database.execute(
        f"CREATE PUBLICATION {database.name} FOR ALL TABLES",
        f"SELECT pg_create_logical_replication_slot('{database.name}', 'pgoutput')",
    )


def inserted(database: Database, *, binary: bool) -> Values:
    """Column 1 of every insert, by the object decoder."""
    with database.connect() as connection:
        connection.execute(PIN_STATEMENT)
        found = connection.execute(
            "SELECT data FROM pg_logical_slot_peek_binary_changes(%s, NULL, NULL, 'proto_version', '1',"
            f" 'publication_names', '{database.name}', 'binary', '{str(binary).lower()}')",
            [database.name],
        ).fetchall()
    values: Values = {}
    for (data,) in found:
        assert isinstance(data, bytes)
        message = read_message(data)
        if isinstance(message, Insert):
            values.setdefault(message.relid, []).append(message.new[1])
    return values


def landed_facts(database: Database, names: list[str]) -> dict[str, RelationFacts]:
    with connected(SecretStr(database.dsn)) as connection:
        found = relation_facts(connection, names=[QualifiedName("public", name) for name in names])
    return {facts.relname: RelationFacts.from_json(facts.to_json()) for facts in found}
