"""The end of a pipeline: what it made at the source is removed, and its lake too if that is asked for."""
