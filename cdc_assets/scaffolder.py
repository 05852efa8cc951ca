"""``dg scaffold defs cdc_assets.PostgresCdcComponent NAME``: a file that loads once its variables are set."""

from __future__ import annotations

import re
from typing import Any

from dagster.components.component_scaffolding import scaffold_component
from dagster.components.scaffold.scaffold import Scaffolder, ScaffoldRequest

_FILE = """\
# The command reads this file too: postgres-cdc doctor --config {file}
type: {type_name}

attributes:
  name: {name}
  source:
    dsn: "{{{{ env.{variable}_DSN }}}}"
  lake:
    path: "{{{{ env.{variable}_LAKE }}}}"
  tables:
    - public.orders

requirements:
  env: [{variable}_DSN, {variable}_LAKE]
"""


class PostgresCdcScaffolder(Scaffolder[Any]):
    """Writes the required fields; the pipeline's name is the folder's."""

    def scaffold(self, request: ScaffoldRequest[Any]) -> None:
        name = re.sub(r"[^a-z0-9_]", "_", request.target_path.name.lower())[:63]
        variable = name.upper()
        if request.scaffold_format != "yaml":
            scaffold_component(request)
            return
        file = request.target_path if request.append else request.target_path / "defs.yaml"
        text = _FILE.format(
            file=f"{request.target_path.name}/defs.yaml", type_name=request.type_name, name=name, variable=variable
        )
        before = f"{file.read_text()}---\n" if request.append else ""
        file.write_text(before + text)
