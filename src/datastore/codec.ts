// Between keys and values in memory and the paths and JSON that stand in etcd and SQLite: one layout for both.
import { type Cidr, type IpVersion, ipVersion, parseCidr, tryParseCidr } from "../lib/ip.ts";
import {
  type AllocationAttributes,
  type Block,
  findKindByPlural,
  kindOf,
  type Resource,
  type StoredKey,
  type StoredQuery,
  type ValueOf,
} from "../model/index.ts";
import { UnreadableEntry } from "./errors.ts";

/** The stretch of paths a query reads: one path, or all that begin so and pass `accepts`. */
export interface PathRange {
  readonly start: string;
  readonly exact: boolean;
  readonly accepts: (key: StoredKey) => boolean;
}

const RESOURCES = "/calico/resources/v3/projectcalico.org/";
const IPAM = "/calico/ipam/v2/";
const FELIX = "/calico/felix/v2/";
const FELIX_HOSTS = "/calico/felix/v1/host/";

const escape = (name: string): string => name.replaceAll("%", "%25").replaceAll("/", "%2f");
const unescape = (name: string): string => name.replaceAll("%2f", "/").replaceAll("%25", "%");
const cidrName = (cidr: Cidr): string => cidr.replace("/", "-");
const family = (version: IpVersion): string => `ipv${version}`;

export function pathOf(key: StoredKey): string {
  switch (key.type) {
    case "resource": {
      const plural = kindOf(key.kind).plural;
      return `${RESOURCES}${plural}/${key.namespace === undefined ? "" : `${key.namespace}/`}${key.name}`;
    }
    case "block":
      return `${IPAM}assignment/${family(ipVersion(key.cidr))}/block/${cidrName(key.cidr)}`;
    case "blockAffinity":
      return `${IPAM}${key.affinityType}/${key.host}/${family(ipVersion(key.cidr))}/block/${cidrName(key.cidr)}`;
    case "ipamHandle":
      return `${IPAM}handle/${key.handleId}`;
    case "ipamConfig":
      return `${IPAM}config`;
    case "ipamHost":
      return `${IPAM}host/${key.host}`;
    case "felixStatus":
      return `${FELIX}${key.region}/host/${key.host}/${key.last ? "last_reported_status" : "status"}`;
    case "workloadStatus":
      return `${FELIX}${key.region}/host/${key.host}/workload/${escape(key.orchestrator)}/${escape(key.workload)}/endpoint/${escape(key.endpoint)}`;
    case "hostEndpointStatus":
      return `${FELIX_HOSTS}${key.host}/endpoint/${escape(key.endpoint)}`;
  }
}

/** Nothing for a path that is none of ours. */
export function parsePath(path: string): StoredKey | undefined {
  if (path.startsWith(RESOURCES)) return parseResourcePath(path.slice(RESOURCES.length).split("/"));
  if (path.startsWith(IPAM)) return parseIpamPath(path.slice(IPAM.length).split("/"));
  if (path.startsWith(FELIX)) return parseStatusPath(path.slice(FELIX.length).split("/"));
  if (path.startsWith(FELIX_HOSTS)) {
    const [host, literal, endpoint, ...rest] = path.slice(FELIX_HOSTS.length).split("/");
    if (host === undefined || literal !== "endpoint" || endpoint === undefined || rest.length > 0) return undefined;
    return { type: "hostEndpointStatus", host, endpoint: unescape(endpoint) };
  }
  return undefined;
}

function parseResourcePath([plural = "", ...names]: readonly string[]): StoredKey | undefined {
  const kind = findKindByPlural(plural);
  if (kind === undefined || names.length !== (kind.namespaced ? 2 : 1) || names.includes("")) return undefined;
  const [first = "", second = ""] = names;
  return kind.namespaced
    ? { type: "resource", kind: kind.name, namespace: first, name: second }
    : { type: "resource", kind: kind.name, name: first };
}

function parseIpamPath(parts: readonly string[]): StoredKey | undefined {
  const [first = "", second = "", third = "", literal = "", fifth = ""] = parts;
  if (first === "config" && parts.length === 1) return { type: "ipamConfig" };
  if (first === "handle" && parts.length === 2) return { type: "ipamHandle", handleId: second };
  if (first === "host" && parts.length === 2) return { type: "ipamHost", host: second };
  if (first === "assignment" && parts.length === 4 && third === "block") {
    const cidr = parseCidrName(literal);
    return cidr === undefined ? undefined : { type: "block", cidr };
  }
  if ((first === "host" || first === "virtual") && parts.length === 5 && literal === "block") {
    const cidr = parseCidrName(fifth);
    return cidr === undefined ? undefined : { type: "blockAffinity", affinityType: first, host: second, cidr };
  }
  return undefined;
}

function parseStatusPath(parts: readonly string[]): StoredKey | undefined {
  const [region = "", literal, host = "", what, orchestrator = "", workload = "", literal2, endpoint = ""] = parts;
  if (literal !== "host") return undefined;
  if (parts.length === 4 && (what === "status" || what === "last_reported_status"))
    return { type: "felixStatus", region, host, last: what !== "status" };
  if (parts.length === 8 && what === "workload" && literal2 === "endpoint")
    return {
      type: "workloadStatus",
      region,
      host,
      orchestrator: unescape(orchestrator),
      workload: unescape(workload),
      endpoint: unescape(endpoint),
    };
  return undefined;
}

function parseCidrName(text: string): Cidr | undefined {
  const dash = text.lastIndexOf("-");
  return dash < 0 ? undefined : tryParseCidr(`${text.slice(0, dash)}/${text.slice(dash + 1)}`);
}

export function rangeOf(query: StoredQuery): PathRange {
  const under = (
    start: string,
    accepts: (key: StoredKey) => boolean = (key) => key.type === query.type,
  ): PathRange => ({
    start,
    exact: false,
    accepts,
  });
  const only = (start: string): PathRange => ({ start, exact: true, accepts: (key) => key.type === query.type });
  switch (query.type) {
    case "resource": {
      const { plural, namespaced } = kindOf(query.kind);
      const { namespace, name, namePrefix } = query;
      const base = `${RESOURCES}${plural}/`;
      const folder = namespaced && namespace !== undefined ? `${base}${namespace}/` : base;
      const located = !namespaced || namespace !== undefined;
      if (located && name !== undefined) return only(`${folder}${name}`);
      return under(
        located ? `${folder}${namePrefix ?? ""}` : folder,
        (key) =>
          key.type === "resource" &&
          key.kind === query.kind &&
          (name === undefined || key.name === name) &&
          (namePrefix === undefined || key.name.startsWith(namePrefix)),
      );
    }
    case "block":
      return under(`${IPAM}assignment/${query.version === undefined ? "" : `${family(query.version)}/`}`);
    case "blockAffinity": {
      const { host, version, affinityType } = query;
      const accepts = (key: StoredKey): boolean =>
        key.type === "blockAffinity" &&
        (host === undefined || key.host === host) &&
        (version === undefined || ipVersion(key.cidr) === version) &&
        (affinityType === undefined || key.affinityType === affinityType);
      // Host and virtual affinities have no common folder but the IPAM root; its other children are passed over.
      if (affinityType === undefined) return under(IPAM, accepts);
      const folder = `${IPAM}${affinityType}/${host === undefined ? "" : `${host}/`}`;
      return under(
        host !== undefined && version !== undefined ? `${folder}${family(version)}/block/` : folder,
        accepts,
      );
    }
    case "ipamHandle":
      return under(`${IPAM}handle/`);
    case "ipamConfig":
      return only(`${IPAM}config`);
    case "ipamHost":
      return under(`${IPAM}host/`);
    case "felixStatus":
      return under(FELIX);
    case "workloadStatus":
      return under(`${FELIX}${query.region}/host/${query.host === undefined ? "" : `${query.host}/workload/`}`);
    case "hostEndpointStatus":
      return under(`${FELIX_HOSTS}${query.host === undefined ? "" : `${query.host}/endpoint/`}`);
  }
}

export function encodeValue<K extends StoredKey>(key: K, value: ValueOf<K>): string {
  switch (key.type) {
    case "resource": {
      const { kind, apiVersion, metadata, ...rest } = value as Resource;
      const { resourceVersion: _, ...kept } = metadata;
      return JSON.stringify({ kind, apiVersion, metadata: kept, ...rest });
    }
    case "block":
      return encodeBlock(value as Block);
    case "blockAffinity": {
      const { state, deleted } = value as ValueOf<Extract<StoredKey, { type: "blockAffinity" }>>;
      return JSON.stringify({ state, deleted });
    }
    case "ipamHandle": {
      const { block, deleted } = value as ValueOf<Extract<StoredKey, { type: "ipamHandle" }>>;
      return JSON.stringify({ block, deleted });
    }
    case "ipamConfig": {
      const config = value as ValueOf<Extract<StoredKey, { type: "ipamConfig" }>>;
      return JSON.stringify({
        strict_affinity: config.strictAffinity || undefined,
        auto_allocate_blocks: config.autoAllocateBlocks || undefined,
        maxBlocksPerHost: config.maxBlocksPerHost || undefined,
        kubeVirtVMAddressPersistence: config.kubeVirtVmAddressPersistence || undefined,
        ipCooldownSeconds: config.ipCooldownSeconds || undefined,
      });
    }
    case "ipamHost":
      return "{}";
    case "felixStatus": {
      const status = value as ValueOf<Extract<StoredKey, { type: "felixStatus" }>>;
      return JSON.stringify({ time: status.time, uptime: status.uptime, first_update: status.firstUpdate });
    }
    case "workloadStatus":
    case "hostEndpointStatus":
      return JSON.stringify({ status: (value as { status: string }).status });
  }
}

/** The value that stands at a path; `UnreadableEntry` when it is not what the key promises. */
export function decodeValue<K extends StoredKey>(key: K, path: string, text: string): ValueOf<K> {
  try {
    return decode(key, text) as ValueOf<K>;
  } catch (error) {
    throw new UnreadableEntry(path, error instanceof Error ? error.message : String(error), key, { cause: error });
  }
}

type Json = Record<string, unknown>;

function decode(key: StoredKey, text: string): unknown {
  switch (key.type) {
    case "resource": {
      const json = object(JSON.parse(text));
      object(json["metadata"]);
      return json;
    }
    case "block":
      return decodeBlock(object(parseWithBigSequence(text)));
    case "blockAffinity": {
      const json = text === "" ? {} : object(JSON.parse(text));
      return { state: json["state"] ?? "", deleted: json["deleted"] ?? false };
    }
    case "ipamHandle": {
      const json = object(JSON.parse(text));
      return { handleId: key.handleId, block: json["block"] ?? {}, deleted: json["deleted"] ?? false };
    }
    case "ipamConfig": {
      const json = object(JSON.parse(text));
      return {
        strictAffinity: json["strict_affinity"] ?? false,
        autoAllocateBlocks: json["auto_allocate_blocks"] ?? false,
        maxBlocksPerHost: json["maxBlocksPerHost"] ?? 0,
        ...optional("kubeVirtVmAddressPersistence", json["kubeVirtVMAddressPersistence"]),
        ...optional("ipCooldownSeconds", json["ipCooldownSeconds"]),
      };
    }
    case "ipamHost":
      return {};
    case "felixStatus": {
      const json = object(JSON.parse(text));
      return { time: json["time"] ?? "", uptime: json["uptime"] ?? 0, firstUpdate: json["first_update"] ?? false };
    }
    case "workloadStatus":
    case "hostEndpointStatus":
      return { status: object(JSON.parse(text))["status"] };
  }
}

function encodeBlock(block: Block): string {
  const sequences = Object.fromEntries(
    Object.entries(block.sequenceNumberForAllocation).map(([ordinal, n]) => [ordinal, rawNumber(n)]),
  );
  return JSON.stringify({
    cidr: block.cidr,
    affinity: block.affinity,
    affinity_claim_time: block.affinityClaimTime,
    allocations: block.allocations,
    unallocated: block.unallocated,
    attributes: block.attributes.map((a) => ({
      handle_id: a.handleId,
      secondary: a.secondary,
      alternateOwnerAttrs: a.alternateOwnerAttributes,
      releasedAt: a.releasedAt,
    })),
    sequenceNumber: rawNumber(block.sequenceNumber),
    sequenceNumberForAllocation: sequences,
    deleted: block.deleted,
  });
}

function decodeBlock(json: Json): Block {
  const sequences = (json["sequenceNumberForAllocation"] ?? {}) as Json;
  // Before affinities had a type, the host's bare name stood in `hostAffinity`.
  const affinity =
    json["affinity"] ?? (json["hostAffinity"] === undefined ? undefined : `host:${json["hostAffinity"]}`);
  return {
    cidr: parseCidr(String(json["cidr"])),
    ...optional("affinity", affinity as string | null | undefined),
    ...optional("affinityClaimTime", json["affinity_claim_time"] as string | null | undefined),
    allocations: (json["allocations"] ?? []) as (number | null)[],
    unallocated: (json["unallocated"] ?? []) as number[],
    attributes: ((json["attributes"] ?? []) as Json[]).map(decodeAttributes),
    sequenceNumber: BigInt((json["sequenceNumber"] ?? 0) as number | bigint),
    sequenceNumberForAllocation: Object.fromEntries(
      Object.entries(sequences).map(([ordinal, n]) => [ordinal, BigInt(n as number | bigint)]),
    ),
    deleted: (json["deleted"] ?? false) as boolean,
  };
}

function decodeAttributes(json: Json): AllocationAttributes {
  return {
    ...optional("handleId", json["handle_id"]),
    ...optional("secondary", json["secondary"]),
    ...optional("alternateOwnerAttributes", json["alternateOwnerAttrs"]),
    ...optional("releasedAt", json["releasedAt"]),
  } as AllocationAttributes;
}

/** JSON.parse that keeps integers beyond 2^53 whole. */
function parseWithBigSequence(text: string): unknown {
  if (!/\d{16}/.test(text)) return JSON.parse(text);
  return JSON.parse(text, (_key, value: unknown, context?: { readonly source?: string }) =>
    typeof value === "number" && !Number.isSafeInteger(value) && /^\d+$/.test(context?.source ?? "")
      ? BigInt(context?.source ?? 0)
      : value,
  );
}

const rawNumber = (n: bigint): unknown => (JSON as unknown as { rawJSON(text: string): unknown }).rawJSON(n.toString());

const optional = <N extends string, V>(name: N, value: V): { [P in N]?: NonNullable<V> } =>
  (value === undefined || value === null ? {} : { [name]: value }) as { [P in N]?: NonNullable<V> };

function object(value: unknown): Json {
  if (typeof value !== "object" || value === null || Array.isArray(value)) throw new Error("want a JSON object");
  return value as Json;
}
