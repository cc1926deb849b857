"""What planes share and does I/O, without any."""
