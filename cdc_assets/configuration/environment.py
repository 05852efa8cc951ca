"""``{{ env.NAME }}`` in the configuration file, rendered as Dagster's components do, for Dagster and for the command.

There is one difference from Dagster's own scope: a variable that is not set is an error. There it would become the text
``None`` inside a connection string. ``{{ env('NAME', 'default') }}`` and ``{{ env.NAME or 'default' }}`` work alike.

The project's ``.env`` is read as well, because ``dg`` and ``dagster dev`` set its variables for Dagster:
https://docs.dagster.io/guides/operate/configuration/using-environment-variables-and-secrets
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dotenv import load_dotenv
from jinja2 import StrictUndefined, TemplateSyntaxError, Undefined, UndefinedError
from jinja2.nativetypes import NativeEnvironment
from pydantic import SecretStr

from spark_jobs.errors import ConfigurationError
from spark_jobs.options.table_mask import SALT_VARIABLE

_REQUIRED = object()
# Dagster recognises a project by these, too
_OF_A_PROJECT = ("pyproject.toml", "dg.toml")
_NOT_SET = " is not set"
_FORM = 'a template is written as in "{{ env.NAME }}"'
_environment = NativeEnvironment(undefined=StrictUndefined)


class MissingVariable(Undefined):
    """An environment variable that is not set: false in a condition, an error as soon as its value is used."""

    def __init__(self, name: str) -> None:
        super().__init__(hint=f"environment variable {name}{_NOT_SET}")

    def __str__(self) -> str:
        self._fail_with_undefined_error()


class EnvironmentScope:
    """What ``env`` means in a template."""

    def __call__(self, name: str, default: object = _REQUIRED) -> object:
        return os.environ.get(name, MissingVariable(name) if default is _REQUIRED else default)

    def __getattr__(self, name: str) -> object:
        if name.startswith(("jinja", "__")):  # jinja probes objects for its own attributes
            raise AttributeError(name)
        return os.environ.get(name, MissingVariable(name))


def set_from_env_file(folder: Path) -> None:
    """Set the variables of the project's ``.env``, except those that are set already: of the file in ``folder``, or of
    the nearest one above, up to the root of the project. Outside a project no folder above is searched, since it may be
    somebody else's, as /tmp is. Raises ConfigurationError."""
    folders = (folder, *folder.parents)
    root = next((at for at, each in enumerate(folders) if any((each / name).is_file() for name in _OF_A_PROJECT)), 0)
    file = next((each / ".env" for each in folders[: root + 1] if (each / ".env").is_file()), None)
    try:
        if file is not None:
            load_dotenv(file)
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{file}: cannot be read: {why_unreadable(error)}") from None


def why_unreadable(error: OSError | UnicodeDecodeError) -> str:
    """Without the path, which the message names, and without bytes of the file."""
    return error.strerror or type(error).__name__ if isinstance(error, OSError) else "it is not UTF-8"


def mask_salt() -> SecretStr | None:
    """The key of masked columns' hashes. Only from the environment: a configuration file is copied too easily."""
    salt = os.environ.get(SALT_VARIABLE)
    return None if salt is None else SecretStr(salt)


def rendered(text: str, scope: Mapping[str, object]) -> Any:
    """A template's value, parsed if it is a Python literal; other text unchanged. Raises ConfigurationError."""
    if "{{" not in text and "{%" not in text:
        return text
    try:
        value: Any = _environment.from_string(text).render(scope)
        if isinstance(value, Undefined):
            str(value)  # raises the error that names what is missing
    except UndefinedError as error:
        what = str(error.message)
        hint = "set it for this process, or in the project's .env" if what.endswith(_NOT_SET) else _FORM
        raise ConfigurationError(what, hint=hint) from None
    except TemplateSyntaxError as error:
        raise ConfigurationError(f"not a template: {error.message}", hint=_FORM) from None
    except Exception as error:  # noqa: BLE001 - whatever its expression raises; its words may be a value
        raise ConfigurationError(f"the template fails: {type(error).__name__}") from None
    return value
