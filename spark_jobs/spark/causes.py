"""Why Spark failed: the innermost informative cause, in one line without any cell's value.

Classic Spark gives a Java stack trace as text, Spark Connect the error's text and its chain of causes, and an
executor's Python error is a traceback inside one of these. So causes are read from the text: outermost first, innermost
last.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from spark_jobs.delta.files import BUSY, file_gone
from spark_jobs.delta.table import APPENDS_ONLY, delta_identifier, moved_away
from spark_jobs.errors import new_snapshot, one_line
from spark_jobs.object_stores import GOOGLE_CONNECTOR


@dataclass(frozen=True)
class Cause:
    """``said`` holds no cell's value, no SQL and no password; ``hint`` is empty if no remedy is known."""

    said: str
    hint: str = ""


@dataclass(frozen=True)
class _Thrown:
    """One exception of the chain: its class without the package, the first line of its message."""

    package: str
    name: str
    message: str

    @property
    def safe(self) -> bool:
        return self.package.startswith(_SAFE_PACKAGES) or _SAFE_CONDITIONS.match(self.message) is not None

    def __str__(self) -> str:
        return f"{self.name}: {self.message}" if self.message else self.name


# a line of a Java stack trace, or the last one of a Python traceback, that begins with the exception's class
_THROWN = re.compile(
    r"^(?:: |Caused by: )?((?:[A-Za-z_]\w*\.)*)([A-Za-z_][\w$]*(?:Exception|Error|Failure|Exit))(?:: (.*))?$",
    re.MULTILINE,
)
_CONDITION = re.compile(r"^\[([A-Z][A-Z0-9_.]{4,})\]")

# raised by our own statements if the lake's table is not in the state that the change log continues
MISSING_ROW = "a change needs a row that the table does not have"

# raised by our own statements, after the column's name, for a text that Spark's JSON parser refuses
NOT_A_VARIANT = "a JSON text that a variant cannot hold, with a key twice, say, or half of a surrogate pair"

JVM_ENDED = (
    "Spark's JVM has ended, most often for want of memory: raise spark.driver.memory in spark.config, run it again"
)

# as it stands in the configuration, for this Spark's Hadoop
_ADD = "let Spark fetch the connector for this storage: in spark.config, spark.jars.packages: "

# patterns that identify a cause, and its remedy, with the pattern's groups. They match nothing that may be part of a
# row's value
_KNOWN: dict[tuple[str, ...], str] = {
    (r"No space left on device", r"Disk quota exceeded"): (
        "the disk is full: free space in the lake's storage and in spark.local.dir, then run it again"
    ),
    (
        r"Permission denied",
        r"Read-only file system",
        r"Operation not permitted",
        r"AccessDeniedException",
        r"DELTA_CANNOT_CREATE_LOG_PATH",
        r"Parent path is not a directory",
        r"Mkdirs failed to create",
    ): "let the user that Spark runs as write there, or choose another lake.path",
    (r"OutOfMemoryError(?:: (?:Java heap space|GC overhead limit exceeded|Metaspace))?", r"^MemoryError"): (
        "give Spark more memory: spark.driver.memory, on a cluster spark.executor.memory, in spark.config"
    ),
    (
        r"ExecutorLostFailure",
        r"Executor heartbeat timed out",
        r"Python worker exited unexpectedly \(crashed\)",
    ): "a process of Spark's was ended, most often for want of memory: look at its log, give it more, run it again",
    # the second pattern is py4j's, when nobody answers at the other end
    (
        r"SparkContext was shut down",
        r"^(?:Py4JNetworkError|ConnectionRefusedError|ConnectionResetError)",
        # the JVM died during a call; if it is alive, its trace follows
        r"^Py4JError(?=: An error occurred while calling [\w.$]+$)",
    ): JVM_ENDED,
    (
        r"DELTA_CONCURRENT_[A-Z_]+",
        r"DELTA_(?:METADATA|PROTOCOL)_CHANGED",
        r"^Concurrent[A-Za-z]+Exception",
        r"^(?:Metadata|Protocol)ChangedException",
    ): "another writer committed to the table meanwhile: run it again",
    (r"^(?:ModuleNotFoundError|ImportError): No module named '[\w.]+'",): (
        "install it for the Python that executors run, or name another one in PYSPARK_PYTHON"
    ),
    (r"PYTHON_VERSION_MISMATCH",): "executors must run the driver's Python version: name it in PYSPARK_PYTHON",
    (r"Cannot run program",): "executors have no such Python: name another one in PYSPARK_PYTHON",
    (r"DELTA_CANNOT_MODIFY_APPEND_ONLY",): APPENDS_ONLY,
    (r"(?<=\[DELTA_VIOLATE_CONSTRAINT_WITH_VALUES\] )CHECK constraint (?P<constraint>\w+)",): (
        "somebody has added it to the Delta table, and a row of the source does not meet it:"
        " ALTER TABLE {table} DROP CONSTRAINT {constraint}"
    ),
    (r"DELTA_UNSUPPORTED_FEATURES_FOR_(?:READ|WRITE)",): (
        "another writer has given the table a feature that this version of Delta does not know: install the delta-spark"
        " of that writer, or let it drop the feature"
    ),
    (r"/_staging/",): "another process swept this table's staging folder: let one write at a time, run it again",
    (f"column .{{1,255}}?: {NOT_A_VARIANT}",): (
        'remove the column from types:, or set on_unrepresentable: "null" for it'
    ),
    (MISSING_ROW,): f"if somebody else has written this table, {new_snapshot('{name}')}",
    (r"DELTA_TRUNCATED_TRANSACTION_LOG", r"DELTA_VERSIONS_NOT_CONTIGUOUS", r"DELTA_STATE_RECOVER_ERROR"): (
        "commits of the Delta table are gone: " + moved_away("{path}")
    ),
    (r"\S+\.checkpoint\.\S*parquet is not a Parquet file", r"Checkpoint file to load version: \d+ is missing"): (
        "commits from before this checkpoint are gone, too: " + moved_away("{path}")
    ),
    (r"DELTA_BLOCK_COLUMN_MAPPING_AND_CDC_OPERATION",): (
        "allow the write, and turn the change data feed on again afterwards:"
        " ALTER TABLE {table} UNSET TBLPROPERTIES ('delta.enableChangeDataFeed')"
    ),
    (r"FileNotFoundException", r"FILE_NOT_EXIST", r"^FileNotFoundError", r"PATH_NOT_FOUND"): file_gone("{name}"),
    (r"ClassNotFoundException: Class org\.apache\.hadoop\.fs\.s3a\.\w+ not found",): _ADD
    + '"org.apache.hadoop:hadoop-aws:{hadoop}"',
    (r"ClassNotFoundException: Class org\.apache\.hadoop\.fs\.azurebfs\.\w+ not found",): (
        _ADD + '"org.apache.hadoop:hadoop-azure:{hadoop}"'
    ),
    (r"ClassNotFoundException: Class (?:com\.google\.cloud\.hadoop\.fs\.gcs|org\.apache\.hadoop\.fs\.gs)\.\w+ not",): (
        _ADD + f'"{GOOGLE_CONNECTOR}"'
    ),
    # as hadoop-aws names the answers 503, 500 and none at all, after its own retries
    (
        r"AWSServiceThrottledException",
        r"AWSStatus500Exception",
        r"AWSNoResponseException",
        r"AWSApiCallTimeoutException",
    ): BUSY,
    (r"UnknownStoreException",): "create the bucket, or correct lake.path",
    (r'No FileSystem for scheme "\w+"',): "choose a lake.path that Spark can open: a folder, s3a://, gs:// or abfss://",
    (r"ConnectException", r"UnknownHostException", r"NoRouteToHostException", r"SocketTimeoutException"): (
        "check that Spark can reach the lake's storage"
    ),
}
_PATTERNS = tuple((re.compile("|".join(words)), hint) for words, hint in _KNOWN.items())
# packages whose messages name files and hosts, never rows
_SAFE_PACKAGES = ("java.io.", "java.nio.file.", "java.net.", "org.apache.hadoop.fs.", "org.apache.hadoop.security.")
_SAFE_CONDITIONS = re.compile(r"^\[(?:PATH_NOT_FOUND|FAILED_READ_FILE|DELTA_CANNOT_CREATE_LOG_PATH|DELTA_LOG_\w+)\b")
_SQLSTATE = re.compile(r" SQLSTATE: \w{5}$")
_SOMEBODY_ELSE = "if somebody else has altered the Delta table, DESCRIBE HISTORY {table} shows when, and how"
_CREDENTIALS = re.compile(r"(?<=://)[^/@\s]+@")


def innermost_cause(error: Exception, name: object, path: str) -> Cause:
    """The innermost cause that is known, with its hint; otherwise the class of the innermost one. ``name`` and
    ``path``: of the table that is read or written."""
    known = {
        "table": delta_identifier(path),
        "path": path,
        "name": str(name).replace("'", "'\\''"),
        "hadoop": _hadoop(),
    }
    chain = _chain(error)
    for thrown in reversed(chain):
        for pattern, hint in _PATTERNS:
            if match := pattern.search(str(thrown)):
                text = _plain(str(thrown) if thrown.safe else match[0])
                return Cause(text, hint.format(**known, **match.groupdict()))
    for thrown in reversed(chain):
        if thrown.message and thrown.safe:
            return Cause(_plain(str(thrown)))
    conditions = [match[1] for thrown in reversed(chain) if (match := _CONDITION.match(thrown.message))]
    named = dict.fromkeys([*conditions[:1], chain[-1].name])
    refused = any(name.startswith("DELTA_") for name in named)
    return Cause(_plain(", ".join(named)), _SOMEBODY_ELSE.format(**known) if refused else "")


def text_of(error: BaseException) -> str:
    """The error's text. Py4J asks the JVM for that of a Java exception, and a JVM that has ended since does not answer:
    then it is what asking for it has raised."""
    try:
        return str(error)
    except Exception as unanswered:  # noqa: BLE001 - whatever py4j raises then
        return f"{type(unanswered).__name__}: {unanswered}"


def _hadoop() -> str:
    """The version of Hadoop that this process's Spark brings."""
    import pyspark

    jars = Path(pyspark.__file__).parent.glob("jars/hadoop-client-api-*.jar")
    return next((jar.stem.rpartition("-")[2] for jar in jars), "VERSION")


def _chain(error: Exception) -> list[_Thrown]:
    """The error itself, then the causes that its text names. Never empty."""
    # attributes of pyspark's exceptions: the first of classic Spark's, the second of Connect's
    traces = [text_of(error), getattr(error, "_stackTrace", None) or "", getattr(error, "_stacktrace", None) or ""]
    first = (traces[0].strip().splitlines() or [""])[0]
    itself = _Thrown(f"{type(error).__module__}.", type(error).__name__, first)
    matches = _THROWN.finditer("\n".join(traces))
    return [itself, *(_Thrown(match[1], match[2].rpartition("$")[2], match[3] or "") for match in matches)]


def _plain(text: str) -> str:
    return _CREDENTIALS.sub("", _SQLSTATE.sub("", one_line(text)))
