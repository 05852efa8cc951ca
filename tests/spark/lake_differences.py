"""What is wrong with a lake after a campaign, in words: rows that differ, commits that do not form one chain."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from deltalake import DeltaTable

from spark_jobs.change_log.window_marker import WindowMarker
from spark_jobs.qualified_name import QualifiedName
from tests.spark.commit_chain import faults, our_commits
from tests.spark.followed_pipeline import Followed


def table_differences(followed: Followed, name: QualifiedName, markers: Sequence[WindowMarker]) -> list[str]:
    """Of its chain of commits, and of its rows, each as often as the source has it."""
    commits = our_commits(followed.pipeline.lake.table(name))
    rows, columns = followed.lake_rows(name)
    return [
        *(f"{name}: {fault}" for fault in faults(commits, markers)),
        *_counted(str(name), rows, followed.source_rows(name, columns)),
    ]


def message_differences(followed: Followed, sent: Iterable[str]) -> list[str]:
    """``sent``: the contents of the messages whose transactions were committed."""
    written = DeltaTable(followed.pipeline.lake.messages).to_pyarrow_table().column("content").to_pylist()
    return _counted("messages", (content.decode() for content in written), sent)


def _counted(name: str, lake: Iterable[object], source: Iterable[object]) -> list[str]:
    in_lake, in_source = Counter(lake), Counter(source)
    extra, lacking = in_lake - in_source, in_source - in_lake
    if not extra and not lacking:
        return []
    return [f"{name}: the lake has {extra.total()} rows that the source lacks, and lacks {lacking.total()}"]
