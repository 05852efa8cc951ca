"""The engine: reads the slot, lands the change log and applies it to Delta tables. It knows nothing of Dagster."""
