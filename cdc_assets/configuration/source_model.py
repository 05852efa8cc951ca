"""The fields of ``source``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

from pydantic import Field, model_validator

from cdc_assets.configuration.database_name import has_password
from cdc_assets.configuration.fields import MESSAGES, Dsn, KeyPart, Publication, SlotName, Streaming, Word
from cdc_assets.configuration.strict_model import StrictModel
from spark_jobs.configuration import PLUGIN_SETTINGS, PluginName


class MessagesModel(StrictModel):
    """Which messages are kept."""

    prefixes: Sequence[str] = Field(
        description="Prefixes of the messages to keep. A * at the end stands for any continuation.",
        examples=[["outbox", "audit.*"]],
    )


class SourceModel(StrictModel):
    """The PostgreSQL database, and how its slot is read."""

    dsn: Dsn = Field(
        description="The libpq connection string or URI. Take it from the environment; it is never printed, logged or"
        " stored.",
        examples=["postgresql://USER:PASSWORD@HOST:5432/DATABASE"],
    )
    slot: SlotName | None = Field(
        default=None,
        description="The replication slot. It is created if it is missing. Default: the pipeline's name.",
        examples=["shop_1"],
    )
    publication: Publication | None = Field(
        default=None,
        description="The publication. For tables, one is created if it is missing, and kept in step. A publication"
        " of your own, or a list of several, is used as it is and never altered. Default: the pipeline's name.",
        examples=["shop"],
    )
    plugin: PluginName = Field(
        default="pgoutput",
        description="The slot's output plugin. test_decoding is for databases in which no publication can be created;"
        " it requires tables, and refuses streaming, binary, publication and proto_version.",
    )
    streaming: Streaming = Field(
        default="off",
        description="Whether the server sends a large transaction before it commits. The lake is the same either way."
        " parallel needs PostgreSQL 16.",
    )
    two_phase: bool = Field(
        default=False,
        description="Whether the server sends a prepared transaction when it is prepared. The lake is the same either"
        " way. Needs PostgreSQL 15.",
    )
    origin: Literal["any", "none"] = Field(
        default="any",
        description="none leaves out the changes that the source itself received by replication. Needs PostgreSQL 16.",
    )
    messages: Annotated[bool | MessagesModel, MESSAGES] = Field(
        default=False,
        description="Whether messages of pg_logical_emit_message are kept: all, none, or those with certain prefixes.",
        examples=[{"prefixes": ["outbox", "audit.*"]}],
    )
    binary: bool = Field(
        default=False,
        description="Whether the server sends values in binary form. The lake is the same either way. Cannot be"
        " combined with mask.",
    )
    proto_version: Literal[1, 2, 3, 4] | None = Field(
        default=None,
        description="The version of the pgoutput protocol. Default: the highest that the server supports.",
    )
    adopt_slot: bool = Field(
        default=False,
        description="Whether a new lake may take over a slot that is being read for another lake. The other lake can"
        " then no longer be updated from this slot.",
    )
    key_prefix: Annotated[tuple[KeyPart, ...], Field(min_length=1)] | None = Field(
        default=None,
        description="For Dagster: the first parts of the asset keys of the source tables. Default: postgres and the"
        " name of the database.",
        examples=[["eu", "shop"]],
    )
    # not shown: arguments may be secrets
    password_command: Annotated[tuple[Word, ...], Field(min_length=1)] | None = Field(
        default=None,
        repr=False,
        description="A program and its arguments, for a dsn without a password: what it prints is the password. It is"
        " run without a shell, may take 30 s, and is run again for a session that is opened more than 10 minutes later,"
        " or when the password is refused. Executors that read a snapshot run it too.",
        # a tuple: an error's hint must not put the given value into it, as one text is not a list of words
        examples=[
            ("aws", "rds", "generate-db-auth-token", "--hostname", "HOST", "--port", "5432", "--username", "cdc")
        ],
    )

    @model_validator(mode="after")
    def _one_password(self) -> SourceModel:
        if self.password_command and has_password(self.dsn):
            raise ValueError("dsn has a password, and password_command prints one: leave out one of the two")
        return self

    @model_validator(mode="after")
    def _of_the_plugin(self) -> SourceModel:
        for field in PLUGIN_SETTINGS[self.plugin].refused:
            value = getattr(self, field)
            if value != type(self).model_fields[field].default:
                shown = "true" if value is True else value
                raise ValueError(
                    f"{field}: {shown} is not for plugin: {self.plugin}; leave it out, or use plugin: pgoutput"
                )
        return self
