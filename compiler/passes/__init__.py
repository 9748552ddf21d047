"""Passes: functions that rewrite a graph in place, one file each; `pipeline` holds their order."""
