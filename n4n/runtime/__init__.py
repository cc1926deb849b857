"""Thin I/O that the planes share: settings, wire, stores, the control-plane client, upstream calls, child programs."""
