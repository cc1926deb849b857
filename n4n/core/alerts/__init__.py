"""Alerts: what is watched (`rules`), when it is wrong (`conditions`), and when somebody is told (`watch`). Pure."""
