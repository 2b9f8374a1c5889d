"""A fabric as JSON: keys are stable, units stand in them (schema ``pciesim/topology-report/1``)."""

from __future__ import annotations

import json
from typing import Any

from pciesim.fabric import Device, DeviceKind, Fabric
from pciesim.physics import RouteCosts
from pciesim.reports.topology_pairs import PairClass, link_latency, pair_classes

__all__ = ["to_json"]


def to_json(fabric: Fabric, costs: RouteCosts, *, profile: str) -> str:
    """The fabric, its pairs and its assumptions. ``profile`` names where the latencies come from."""
    report = {
        "schema": "pciesim/topology-report/1",
        "name": fabric.name,
        "profile": profile,
        "gpu_model": fabric.gpu_model or None,
        "gpus": [gpu.name for gpu in fabric.gpus],
        "matrix": [list(row) for row in fabric.matrix],
        "numa": [gpu.numa for gpu in fabric.gpus],
        "nics": [nic.name for nic in fabric.nics],
        "nic_labels": [nic.label or None for nic in fabric.nics],
        "nic_matrix": [list(row) for row in fabric.nic_matrix],
        "nodes": [_node(device) for device in fabric.devices],
        "links": [
            {
                "source": link.source,
                "target": link.target,
                "kind": link.kind.value,
                "bandwidth_bytes_per_s": link.bandwidth,
                "latency_s": link_latency(fabric, costs, link),
                "generation": link.generation,
                "width": link.width,
            }
            for link in fabric.links
        ],
        "constraints": [
            {"name": each.name, "capacity_bytes_per_s": each.capacity, "links": [list(pair) for pair in each.links]}
            for each in fabric.constraints
        ],
        "islands": [list(island) for island in fabric.islands],
        "pairs": [_pairs(row) for row in pair_classes(fabric, costs)],
        "host": {
            "cpu": fabric.host.cpu or None,
            "vendor": fabric.host.vendor or None,
            "sockets": len(fabric.of_kind(DeviceKind.SOCKET)),
            "memory_bandwidth_bytes_per_s": fabric.host.memory_bandwidth,
        },
        "p2p": {
            "nccl": fabric.nccl.p2p,
            "nccl_level": fabric.nccl.p2p_level,
            "refused": [
                [one, other]
                for one, row in enumerate(fabric.peer_access)
                for other, allowed in enumerate(row)
                if one != other and not allowed
            ],
            "registry_override": fabric.registry_override,
        },
        "write_collapse": fabric.write_collapse,
        "acs_redirect": fabric.acs_redirect,
        "assumptions": [
            {"text": each.text, "settle": each.settle, "matters": each.matters} for each in fabric.assumptions
        ],
    }
    return json.dumps(report, indent=2, ensure_ascii=False)


def _node(device: Device) -> dict[str, Any]:
    return {
        "name": device.name,
        "kind": device.kind.value,
        "index": device.index,
        "numa": device.numa,
        "model": device.model or None,
        "label": device.label or None,
        "chip": device.chip or None,
    }


def _pairs(row: PairClass) -> dict[str, Any]:
    return {
        "path_type": row.path_type,
        "pairs": [list(pair) for pair in row.pairs],
        "switches": row.switches,
        "root_complexes": row.root_complexes,
        "socket_hops": row.socket_hops,
        "store_latency_s": row.store,
        "load_latency_s": row.load,
        "write_bytes_per_s": row.write,
        "read_bytes_per_s": row.read,
        "copy_bytes_per_s": row.copy,
        "limited_by": row.limit,
        "peer_access": row.peer,
    }
