"""The prober fleet."""
