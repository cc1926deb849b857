"""One file per revision, in order: expand before the code that needs it ships, contract after."""
