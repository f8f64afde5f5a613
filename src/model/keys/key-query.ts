// Computes the range of key paths that contains all results of a query. Drivers that sort keys by path read this range
// and discard the keys that the query does not match.
import { ipVersion } from "../../lib/ip/ip.ts";
import { unreachable } from "../../lib/unreachable.ts";
import { FELIX_STATUS, HOST_ENDPOINT_STATUS, IPAM, keyPath, RESOURCES } from "./key-path.ts";
import type { StoredKey, StoredQuery } from "./keys.ts";
import { kindOf } from "../kinds.ts";

/** One path (`exact`), or all paths that begin with `start`. `accepts` returns true for keys that the query matches. */
export interface PathRange {
  readonly start: string;
  readonly exact: boolean;
  readonly accepts: (key: StoredKey) => boolean;
}

export function queryRange(query: StoredQuery): PathRange {
  return { ...startOf(query), accepts: (key) => keyMatches(query, key) };
}

/** Whether the query matches the key. Labels are not checked, because they are part of the value. */
export function keyMatches(query: StoredQuery, key: StoredKey): boolean {
  if (query.type !== key.type) return false;
  switch (query.type) {
    case "resource":
      return (
        key.type === "resource" &&
        key.kind === query.kind &&
        (query.namespace === undefined || key.namespace === query.namespace) &&
        (query.name === undefined || key.name === query.name) &&
        (query.namePrefix === undefined || key.name.startsWith(query.namePrefix))
      );
    case "block":
      return key.type === "block" && (query.version === undefined || ipVersion(key.cidr) === query.version);
    case "blockAffinity":
      return (
        key.type === "blockAffinity" &&
        (query.host === undefined || key.host === query.host) &&
        (query.version === undefined || ipVersion(key.cidr) === query.version) &&
        (query.affinityType === undefined || key.affinityType === query.affinityType)
      );
    case "workloadStatus":
      return (
        key.type === "workloadStatus" &&
        key.region === query.region &&
        (query.host === undefined || key.host === query.host)
      );
    case "hostEndpointStatus":
      return key.type === "hostEndpointStatus" && (query.host === undefined || key.host === query.host);
    case "ipamHandle":
    case "ipamConfig":
    case "ipamHost":
    case "felixStatus":
      return true;
    default:
      return unreachable(query);
  }
}

function startOf(query: StoredQuery): { readonly start: string; readonly exact: boolean } {
  const under = (start: string) => ({ start, exact: false });
  switch (query.type) {
    case "resource": {
      const { plural, namespaced } = kindOf(query.kind);
      const folder = `${RESOURCES}${plural}/`;
      if (!namespaced) return named(folder, query);
      return query.namespace === undefined ? under(folder) : named(`${folder}${query.namespace}/`, query);
    }
    case "block":
      return under(`${IPAM}assignment/${query.version === undefined ? "" : `ipv${query.version}/`}`);
    case "blockAffinity": {
      // The only common folder of host and virtual affinities is that of IPAM; `accepts` rejects its other entries.
      if (query.affinityType === undefined) return under(IPAM);
      const folder = `${IPAM}${query.affinityType}/`;
      if (query.host === undefined) return under(folder);
      return under(`${folder}${query.host}/${query.version === undefined ? "" : `ipv${query.version}/`}`);
    }
    case "ipamHandle":
      return under(`${IPAM}handle/`);
    case "ipamConfig":
      return { start: keyPath(query), exact: true };
    case "ipamHost":
      return under(`${IPAM}host/`);
    case "felixStatus":
      return under(FELIX_STATUS);
    case "workloadStatus":
      return under(`${FELIX_STATUS}${query.region}/host/${query.host === undefined ? "" : `${query.host}/workload/`}`);
    case "hostEndpointStatus":
      return under(`${HOST_ENDPOINT_STATUS}${query.host === undefined ? "" : `${query.host}/`}`);
    default:
      return unreachable(query);
  }
}

function named(folder: string, query: StoredQuery & { readonly type: "resource" }) {
  if (query.name !== undefined) return { start: folder + query.name, exact: true };
  return { start: folder + (query.namePrefix ?? ""), exact: false };
}
