"""What keeps the lake's cost the same over years: retention, compaction, clean-up."""
