"""Generated protobuf and gRPC stubs of proto/n4n/v1; never edited by hand (`make proto`)."""
