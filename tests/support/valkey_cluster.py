"""A Valkey cluster of masters on loopback, made without the command-line client; its slots can be moved while it is used."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from n4n.runtime.stores.slots import SLOTS
from tests.support.house import free_port
from tests.support.machine import wait_until
from tests.support.valkey import Option, ValkeyServer, running_valkey


class ValkeyCluster:
    """`nodes` are masters; the slots are shared out evenly between those it began with."""

    def __init__(self, nodes: Sequence[ValkeyServer], stack: ExitStack, folder: Path, options: Mapping[str, Option]) -> None:
        self.nodes = list(nodes)
        self._stack, self._folder, self._options = stack, folder, options

    @property
    def url(self) -> str:
        """Of two nodes, so that one may be away."""
        return f"redis://127.0.0.1:{self.nodes[0].port},127.0.0.1:{self.nodes[1].port}"

    def ask(self, node: ValkeyServer, *words: object) -> object:
        """What a node answers, as redis-py reads it."""
        with node.client() as client:
            return client.execute_command(*words)

    def id_of(self, node: ValkeyServer) -> str:
        """Its name in the cluster."""
        return str(self.ask(node, "CLUSTER", "MYID"))

    def master_of(self, slot: int) -> ValkeyServer:
        """Who serves a slot, by what the first node says."""
        for first, last, master, *_ in self.ask(self.nodes[0], "CLUSTER SLOTS"):  # type: ignore[attr-defined]
            if first <= slot <= last:
                return next(node for node in self.nodes if node.port == master[1])
        raise AssertionError(f"nobody serves {slot}")

    def add_node(self) -> ValkeyServer:
        """One more master, without slots."""
        node = _node(self._stack, self._folder, self._options)
        self.nodes.append(node)
        self.ask(self.nodes[0], "CLUSTER", "MEET", "127.0.0.1", node.port)
        self.await_well()
        return node

    def await_well(self) -> None:
        """Until every node knows every other and serves."""
        wait_until(lambda: all(_is_well(self, node) for node in self.nodes))

    def begin_move(self, slot: int, source: ValkeyServer, target: ValkeyServer) -> None:
        """From now on keys that are not at the source any more are asked for at the target (ASK)."""
        self.ask(target, "CLUSTER", "SETSLOT", slot, "IMPORTING", self.id_of(source))
        self.ask(source, "CLUSTER", "SETSLOT", slot, "MIGRATING", self.id_of(target))

    def move_keys(self, slot: int, source: ValkeyServer, target: ValkeyServer) -> int:
        """All keys of the slot; how many."""
        with source.client() as client:
            keys = client.execute_command("CLUSTER", "GETKEYSINSLOT", slot, 1000)
            for key in keys:
                client.execute_command("MIGRATE", "127.0.0.1", target.port, key, 0, 5000)
        return len(keys)

    def end_move(self, slot: int, target: ValkeyServer) -> None:
        """The slot is the target's; everybody is told (MOVED)."""
        name = self.id_of(target)
        for node in (target, *(node for node in self.nodes if node is not target)):
            self.ask(node, "CLUSTER", "SETSLOT", slot, "NODE", name)


def _node(stack: ExitStack, folder: Path, options: Mapping[str, Option]) -> ValkeyServer:
    port = free_port()
    given: dict[str, Option] = {"cluster_enabled": "yes", "cluster_config_file": f"nodes-{port}.conf", "cluster_node_timeout": "2000"}
    return stack.enter_context(running_valkey(folder, port=port, **(given | dict(options))))


@contextmanager
def running_cluster(folder: Path, masters: int = 3, **options: Option) -> Iterator[ValkeyCluster]:
    """A cluster that is well, with more `options` as in valkey.conf, ended in the end."""
    with ExitStack() as stack:
        cluster = ValkeyCluster([_node(stack, folder, options) for _ in range(masters)], stack, folder, options)
        for number, node in enumerate(cluster.nodes):
            first, after = SLOTS * number // masters, SLOTS * (number + 1) // masters
            cluster.ask(node, "CLUSTER", "ADDSLOTSRANGE", first, after - 1)
            cluster.ask(node, "CLUSTER", "SET-CONFIG-EPOCH", number + 1)
        for node in cluster.nodes[1:]:
            cluster.ask(cluster.nodes[0], "CLUSTER", "MEET", "127.0.0.1", node.port)
        cluster.await_well()
        yield cluster


def _is_well(cluster: ValkeyCluster, node: ValkeyServer) -> bool:
    told = cluster.ask(node, "CLUSTER INFO")
    return told["cluster_state"] == "ok" and told["cluster_known_nodes"] == str(len(cluster.nodes))  # type: ignore[index]
