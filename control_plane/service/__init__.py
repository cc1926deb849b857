"""The gRPC side of the control plane: the only place here that knows the generated stubs."""
