"""Snapshots: tables read by executors at one exact LSN, each written in one commit."""
