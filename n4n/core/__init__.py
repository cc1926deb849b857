"""Deciders: pure pieces without sockets, clocks or dice. Everything here is values in, values out."""
