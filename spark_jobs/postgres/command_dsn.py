"""The connection string of a source whose password a command prints."""

from __future__ import annotations

from pydantic import SecretStr

from spark_jobs.postgres.password_command import PasswordCommand


class CommandDsn(SecretStr):
    """A dsn without a password; it is accepted wherever a dsn is."""

    def __init__(self, dsn: SecretStr, command: PasswordCommand) -> None:
        super().__init__(dsn.get_secret_value())
        self.command = command
