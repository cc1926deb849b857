"""What the tests share: a scripted upstream on real loopback sockets and the answers it can give."""
