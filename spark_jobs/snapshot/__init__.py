"""Tables at one exact LSN, read by executors, each written in one commit."""
