// Decides which requests the service handles: those for which the plugin itself would give the same result. It declines
// all others, and the plugin does the work.
import { readlinkSync } from "node:fs";
import type { DatastoreConfig, EtcdConfig } from "../../datastore/index.ts";
import { isForeign } from "../request/dataplane-options.ts";
import { CALICO_IPAM } from "../ipam/delegation.ts";
import type { DatastoreSettings, NetConf } from "../request/net-conf.ts";
import type { CniRequest } from "../request/request.ts";
import { identityFor, identityOf, seesProcesses } from "./process-view.ts";

export interface Candidate {
  readonly request: CniRequest;
  readonly conf: NetConf;
  /** The plugin's process; undefined if this process cannot see it. */
  readonly pid: number | undefined;
}
/** Returns why the service declines a request; undefined if it handles the request. */
export type Scope = (asked: Candidate) => string | undefined;

/** The plugin calls programs and sockets of the host itself: in the agent's container they have other paths or are missing. */
export function notForServices({ request, conf }: Omit<Candidate, "pid">): string | undefined {
  if (conf.ipam.type !== CALICO_IPAM) return `ipam.type ${conf.ipam.type} is a program of the host`;
  if (isForeign(conf)) return "the dataplane's socket is one of the host";
  if (request.command === "VERSION") return "VERSION needs no service";
  return undefined;
}

/**
 * The agent uses its own account and its own files, which have other paths in its container than on the host. A datastore
 * that the network configuration names must be the agent's; otherwise the agent uses its own. The agent may be unable to
 * see the plugin's process.
 */
export function agentScope(name: string, config: DatastoreConfig | undefined): Scope {
  const network = readlinkSync("/proc/self/ns/net");
  const canSee = seesProcesses();
  const isSame = config?.type === "sqlite" ? sameFile(config.path) : undefined;
  return ({ conf: { datastore }, pid: sender }) => {
    const pid = canSee ? sender : undefined;
    const kind = kindOf(datastore);
    if (kind !== "" && kind !== name) return `the network is in ${kind}, the service in ${name}`;
    if (![undefined, network].includes(networkOf(pid))) return OTHER_NETWORK;
    if (config?.type === "etcdv3") return isSameEtcd(config, datastore) ? undefined : "the network is in another etcd";
    if (isSame !== undefined) return isSame(datastore.sqlitePath, pid) ? undefined : OTHER_FILE;
    return undefined;
  };
}

/** The datastore that the plugin would choose from an address alone. A kubeconfig does not count: it is also used for pods. */
function kindOf({ type, etcdEndpoints, etcdDiscoverySrv, sqlitePath }: DatastoreSettings): string {
  if (type !== "") return type;
  if (etcdEndpoints + etcdDiscoverySrv !== "") return "etcdv3";
  return sqlitePath === "" ? "" : "sqlite";
}

const OTHER_NETWORK = "the plugin runs in another network namespace";
const OTHER_FILE = "the network is in another file";

/** A server belongs to one cluster, so one common endpoint is enough. */
function isSameEtcd(ours: EtcdConfig, theirs: DatastoreSettings): boolean {
  if (theirs.etcdDiscoverySrv !== "") return theirs.etcdDiscoverySrv === ours.discoverySrv;
  const named = theirs.etcdEndpoints.split(",").map(comparable);
  if (named.every((endpoint) => endpoint === "")) return true;
  const known = new Set(ours.endpoints.map(comparable));
  return named.some((endpoint) => known.has(endpoint));
}

const comparable = (endpoint: string): string => endpoint.trim().toLowerCase().replace(/\/+$/, "");

/** Compares the file at a path of the plugin with the file that this process opened, if that is still at its own path. */
function sameFile(path: string): (named: string, pid: number | undefined) => boolean {
  const opened = identityOf(path);
  return (named, pid) => {
    if (identityOf(path) !== opened) return false;
    if (named === "") return true;
    if (pid !== undefined && identityOf(rootOf(pid)) !== undefined) return identityFor(pid, named) === opened;
    return named === path && path.startsWith("/"); // a relative path depends on the working directory
  };
}

function networkOf(pid: number | undefined): string | undefined {
  if (pid === undefined) return undefined;
  try {
    return readlinkSync(`/proc/${pid}/ns/net`);
  } catch {
    return undefined; // the process has ended, or may not be inspected
  }
}

const rootOf = (pid: number): string => `/proc/${pid}/root`;
