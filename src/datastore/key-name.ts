// Formats keys for messages: `IPPool(default-v4)`, `NetworkPolicy(prod/allow-dns)`, `BlockKey(cidr=10.0.0.0/26)`.
import type { StoredKey } from "../model/index.ts";

export function nameOfKey(key: StoredKey): string {
  switch (key.type) {
    case "resource":
      return `${key.kind}(${key.namespace === undefined ? "" : `${key.namespace}/`}${key.name})`;
    case "block":
      return `BlockKey(cidr=${key.cidr})`;
    case "blockAffinity":
      return `BlockAffinityKey(cidr=${key.cidr}, host=${key.host}, affinityType=${key.affinityType})`;
    case "ipamHandle":
      return `IPAMHandleKey(id=${key.handleId})`;
    case "ipamConfig":
      return "IPAMConfigKey()";
    case "ipamHost":
      return `IPAMHostKey(host=${key.host})`;
    case "felixStatus":
      return `FelixStatusKey(hostname=${key.host}${key.last ? ", last" : ""})`;
    case "workloadStatus":
      return `WorkloadEndpointStatus(node=${key.host}, orchestrator=${key.orchestrator}, workload=${key.workload}, name=${key.endpoint})`;
    case "hostEndpointStatus":
      return `HostEndpointStatus(node=${key.host}, name=${key.endpoint})`;
  }
}
