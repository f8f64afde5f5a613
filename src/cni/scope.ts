// Which requests a service answers: those to which the plugin itself would give the same answer. All others it declines,
// and the plugin does them.
import { readFileSync, readlinkSync } from "node:fs";
import type { DatastoreConfig, EtcdConfig } from "../datastore/index.ts";
import { accessOf, placesOfAccess, reachesKubernetes } from "./access.ts";
import { isForeign } from "./dataplane-options.ts";
import { CALICO_IPAM } from "./ipam-delegation.ts";
import type { DatastoreSettings, NetConf } from "./net-conf.ts";
import type { CniRequest, Environment } from "./request.ts";
import { identityFor, identityOf, rootMountOf, seesProcesses, seesTheSame } from "./sight.ts";

export interface Asked {
  readonly request: CniRequest;
  readonly conf: NetConf;
  /** The plugin's process; absent when we cannot see it. */
  readonly pid: number | undefined;
}
/** Why a request is the plugin's to do; nothing when it is ours. */
export type Scope = (asked: Asked) => string | undefined;

/** Both kinds of service: programs of the host are called by the plugin. */
export function notForServices({ request, conf }: Omit<Asked, "pid">): string | undefined {
  if (conf.ipam.type !== CALICO_IPAM) return `ipam.type ${conf.ipam.type} is a program of the host`;
  if (isForeign(conf)) return "the dataplane's socket is one of the host";
  if (request.command === "VERSION") return "VERSION needs no service";
  return undefined;
}

/**
 * The node agent's: it uses its own account and its own files, which in its container have other names than on the host.
 * What the configuration names must be what the agent has; what it does not name is the agent's to choose. The agent may be
 * unable to see the plugin's process.
 */
export function agentScope(name: string, config: DatastoreConfig | undefined): Scope {
  const network = ownNamespace("net");
  const canSee = seesProcesses();
  const isSame = config?.type === "sqlite" ? sameFile(config.path) : undefined;
  return ({ conf: { datastore }, pid: asking }) => {
    const pid = canSee ? asking : undefined;
    const kind = kindOf(datastore);
    if (kind !== "" && kind !== name) return `the network is in ${kind}, the service in ${name}`;
    if (![undefined, network].includes(namespaceOf(pid, "net"))) return OTHER_NETWORK;
    if (config?.type === "etcdv3") return isSameEtcd(config, datastore) ? undefined : "the network is in another etcd";
    if (isSame !== undefined) return isSame(datastore.sqlitePath, pid) ? undefined : OTHER_FILE;
    return undefined;
  };
}

/** What the plugin takes when only an address is named; a kubeconfig tells nothing: pods are in Kubernetes in any case. */
function kindOf({ type, etcdEndpoints, etcdDiscoverySrv, sqlitePath }: DatastoreSettings): string {
  if (type !== "") return type;
  if (etcdEndpoints + etcdDiscoverySrv !== "") return "etcdv3";
  return sqlitePath === "" ? "" : "sqlite";
}

const OTHER_NETWORK = "the plugin runs in another network namespace";
const OTHER_FILE = "the network is in another file";
const OTHER_FILES = "the plugin sees other files";
const OTHER_NAME = "the plugin's host has another name";

/** A server belongs to one cluster: one that both name is enough. */
function isSameEtcd(ours: EtcdConfig, theirs: DatastoreSettings): boolean {
  if (theirs.etcdDiscoverySrv !== "") return theirs.etcdDiscoverySrv === ours.discoverySrv;
  const named = theirs.etcdEndpoints.split(",").map(comparable);
  if (named.every((endpoint) => endpoint === "")) return true;
  const known = new Set(ours.endpoints.map(comparable));
  return named.some((endpoint) => known.has(endpoint));
}

const comparable = (endpoint: string): string => endpoint.trim().toLowerCase().replace(/\/+$/, "");

/** Whether a path of the plugin's leads to the file that was at ours when we opened it, and still is. */
function sameFile(path: string): (named: string, pid: number | undefined) => boolean {
  const opened = identityOf(path);
  return (named, pid) => {
    if (identityOf(path) !== opened) return false;
    if (named === "") return true;
    if (pid !== undefined && identityOf(rootOf(pid)) !== undefined) return identityFor(pid, named) === opened;
    return named === path && path.startsWith("/"); // in its folder another file may have this name
  };
}

/**
 * That of a service which a plugin has started: for calls that reach the same things in the same way from the same place,
 * whatever of it their environment says. It lives on the host, and sees all who live there.
 */
export function sameScope(conf: NetConf): Scope {
  const access = accessOf(conf, {});
  const own = (["net", "uts"] as const).map((kind) => ({ kind, namespace: ownNamespace(kind) }));
  const mount = rootMountOf("self");
  const root = identityOf("/");
  const canSee = seesProcesses();
  return ({ conf: theirs, pid: asking }) => {
    const pid = canSee ? asking : undefined;
    for (const { kind, namespace } of own)
      if (namespaceOf(pid, kind) !== namespace) return kind === "net" ? OTHER_NETWORK : OTHER_NAME;
    if (pid === undefined || identityOf(rootOf(pid)) !== root) return OTHER_FILES; // by chroot
    try {
      if (accessOf(theirs, environmentOf(pid)) !== access) return "the network is in another datastore";
    } catch {
      return "its datastore cannot be told"; // the plugin says why
    }
    const isSamePlace = mount !== undefined && rootMountOf(pid) === mount;
    return isSamePlace || findsAll(pid, theirs) ? undefined : OTHER_FILES;
  };
}

/** What a kubeconfig names can be in many places. */
const findsAll = (pid: number, conf: NetConf): boolean =>
  !reachesKubernetes(conf, {}) && seesTheSame(pid, conf, placesOfAccess(conf, {}));

type NamespaceKind = "net" | "uts";
const ownNamespace = (kind: NamespaceKind): string => readlinkSync(`/proc/self/ns/${kind}`);

function namespaceOf(pid: number | undefined, kind: NamespaceKind): string | undefined {
  if (pid === undefined) return undefined;
  try {
    return readlinkSync(`/proc/${pid}/ns/${kind}`);
  } catch {
    return undefined; // it is gone, or none of ours to look at
  }
}

/** What the process was started with. */
function environmentOf(pid: number | undefined): Environment {
  const text = readFileSync(`/proc/${pid}/environ`, "utf8");
  return Object.fromEntries(
    text.split("\0").flatMap((line) => {
      const at = line.indexOf("=");
      return at > 0 ? [[line.slice(0, at), line.slice(at + 1)]] : [];
    }),
  );
}

const rootOf = (pid: number): string => `/proc/${pid}/root`;
