{# the table as it was at the end of the day; without variables, as it is now #}
{% macro at(table) -%}
{% set cut = var(table, {}) -%}
delta_scan('{{ cut.path or env_var("SHOP_LAKE") ~ "/tables/public/" ~ table }}'
{%- if cut %}, version => {{ cut.version }}{% endif %})
{%- endmacro %}
