{{ config(materialized='incremental', incremental_strategy='delete+insert', unique_key='day', tags=['daily']) }}
select date '{{ var("day", run_started_at.date()) }}' as day, status, count(*) as orders, sum(amount) as amount
from {{ at('orders') }}
group by all
