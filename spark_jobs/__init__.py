"""The engine: what reads the slot, lands the change log and applies it to Delta tables. Knows nothing of Dagster."""
