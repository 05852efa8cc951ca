{{ config(materialized='incremental', unique_key='id') }}
select * from {{ source('shop', 'orders') }}
{% if is_incremental() %}
where _commit_lsn >= (select max(_commit_lsn) from {{ this }})
{% endif %}
