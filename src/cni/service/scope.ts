// Decides which requests the service handles: those for which the plugin would return the same result. It declines all others,
// and the plugin does the work.
import { readlinkSync } from "node:fs";
import type { DatastoreConfig, EtcdConfig } from "../../datastore/index.ts";
import { usesGrpcDataplane } from "../request/dataplane-options.ts";
import { CALICO_IPAM } from "../ipam/ipam-plugin.ts";
import type { DatastoreSettings, NetConf } from "../request/net-conf.ts";
import type { CniRequest } from "../request/request.ts";
import { identityFor, identityOf, seesProcesses } from "./process-view.ts";

export interface Candidate {
  readonly request: CniRequest;
  readonly conf: NetConf;
  /** The plugin's process; undefined if it is not visible to this process. */
  readonly pid: number | undefined;
}
/** Returns why the service declines a request; undefined if it handles the request. */
export type Scope = (candidate: Candidate) => string | undefined;

/** Declines requests that use programs or sockets of the host: in the agent's container they have other paths or are missing. */
export function declineForAllServices({ request, conf }: Omit<Candidate, "pid">): string | undefined {
  if (conf.ipam.type !== CALICO_IPAM) return `ipam.type ${conf.ipam.type} is a program on the host`;
  if (usesGrpcDataplane(conf)) return "the dataplane's socket is on the host";
  if (request.command === "VERSION") return "VERSION needs no service";
  return undefined;
}

/**
 * Returns the scope of the agent's service. The agent uses its own account and its own files, which have other paths in its
 * container than on the host. If the network configuration names a datastore, it must be the agent's. The plugin's process may
 * be invisible to the agent.
 */
export function agentScope(name: string, config: DatastoreConfig | undefined): Scope {
  const network = readlinkSync("/proc/self/ns/net");
  const canSee = seesProcesses();
  const isSame = config?.type === "sqlite" ? sameFile(config.path) : undefined;
  return ({ conf: { datastore }, pid: sender }) => {
    const pid = canSee ? sender : undefined;
    const kind = kindOf(datastore);
    if (kind !== "" && kind !== name) return `the network's datastore is ${kind}, the service's is ${name}`;
    if (![undefined, network].includes(networkOf(pid))) return OTHER_NETWORK;
    if (config?.type === "etcdv3")
      return isSameEtcd(config, datastore) ? undefined : "the network's datastore is another etcd cluster";
    if (isSame !== undefined) return isSame(datastore.sqlitePath, pid) ? undefined : OTHER_FILE;
    return undefined;
  };
}

/** Returns the datastore type that the plugin would choose. A kubeconfig does not imply one, because it is also used for pods. */
function kindOf({ type, etcdEndpoints, etcdDiscoverySrv, sqlitePath }: DatastoreSettings): string {
  if (type !== "") return type;
  if (etcdEndpoints + etcdDiscoverySrv !== "") return "etcdv3";
  return sqlitePath === "" ? "" : "sqlite";
}

const OTHER_NETWORK = "the plugin runs in another network namespace";
const OTHER_FILE = "the network's datastore is another file";

/** An etcd server belongs to one cluster, so one common endpoint is enough. */
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
