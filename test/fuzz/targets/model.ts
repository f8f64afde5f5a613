// Targets for text and JSON from users and owners of namespaces: selectors, addresses, resources in etcd or Kubernetes.
import { isIP } from "node:net";
import { Collections } from "../../../src/datastore/kubernetes/collections.ts";
import type { KubeObject } from "../../../src/datastore/kubernetes/api-client.ts";
import {
  addressBytes,
  addressFromBigInt,
  addressFromBytes,
  addressToBigInt,
  cidrAddress,
  cidrContains,
  cidrLength,
  ipVersion,
  tryParseAddress,
  tryParseCidr,
  tryParseNetwork,
} from "../../../src/lib/ip/ip.ts";
import { parseLosslessJson, stringifyLosslessJson } from "../../../src/lib/encoding/lossless-json.ts";
import {
  bgpConfigurationProcessor,
  bgpPeerProcessor,
  clusterInformationProcessor,
  compileSelector,
  decodeValue,
  encodeValue,
  felixConfigProcessor,
  felixNodeProcessor,
  globalNetworkSetProcessor,
  hostEndpointProcessor,
  keyPath,
  type KindName,
  labelRestrictions,
  lookupIn,
  networkSetProcessor,
  parseKeyPath,
  ParsedSelector,
  parseSelector,
  parseStoredPath,
  liveMigrationProcessor,
  endpointSliceProcessor,
  kubernetesServiceProcessor,
  policyProcessor,
  poolProcessor,
  printSelector,
  profileFromNamespace,
  profileFromServiceAccount,
  profileProcessor,
  type ResourceKey,
  SelectorError,
  type StoredKey,
  tierProcessor,
  tunnelPoolProcessor,
  UnreadableValue,
  type UpdateProcessor,
  workloadEndpointProcessor,
  writeSelector,
} from "../../../src/model/index.ts";
import { hasSchema, loadSchema } from "../../../src/model/validation/schemas.ts";
import { parseDuration } from "../../../src/model/validation/duration.ts";
import { parseQuantity } from "../../../src/model/kubernetes/quantity.ts";
import { parseAsNumber } from "../../../src/model/validation/numbers.ts";
import { isValueError } from "../../../src/model/validation/value-error.ts";
import { parseWorkloadEndpointName, WorkloadNameError } from "../../../src/model/workload-name.ts";
import { json } from "../structure/json.ts";
import { text } from "../structure/text.ts";
import { type FuzzTarget, require, requireEqual, textOf } from "../target.ts";

const LABELS: readonly Readonly<Record<string, string>>[] = [
  {},
  { a: "b" },
  { a: "", "k8s-app": "dns", role: "db", "projectcalico.org/namespace": "default" },
  { a: "abc", in: "x", not: "y", has: "z" },
];

function readSelector(input: Uint8Array): boolean {
  const selector = parseSelector(textOf(input));
  const written = writeSelector(selector);
  requireEqual(writeSelector(parseSelector(written)), written, "selector written and parsed again");
  const printed = printSelector(selector);
  const interned = ParsedSelector.of(selector);
  require(ParsedSelector.parse(written) === interned, "equal selectors are one object");
  requireEqual(interned.canonical, printed, "canonical text");
  require(interned.id.length > 0, "a selector has an ID");
  labelRestrictions(selector);
  const [matches, again, canonical] = [selector, parseSelector(written), parseSelector(printed)].map(compileSelector);
  for (const labels of LABELS) {
    const expected = matches?.(lookupIn(labels));
    require(again?.(lookupIn(labels)) === expected, `${written} matches as before`);
    require(canonical?.(lookupIn(labels)) === expected, `${printed} matches as before`);
  }
  return true;
}

function readAddress(input: Uint8Array): boolean {
  const content = textOf(input);
  const address = tryParseAddress(content);
  const version = isIP(content);
  if (!content.includes("%")) require((address !== undefined) === (version !== 0), `an address or not: ${content}`);
  if (address !== undefined) {
    require(tryParseAddress(address) === address, `${address} is canonical`);
    require(addressFromBigInt(addressToBigInt(address), ipVersion(address)) === address, `${address} as a number`);
    require(addressFromBytes(addressBytes(address)) === address, `${address} as bytes`);
  }
  const network = tryParseNetwork(content);
  const cidr = tryParseCidr(content);
  require((network === undefined) === (cidr === undefined), `network and prefix of ${content}`);
  for (const value of [parseDuration(content), parseQuantity(content), parseAsNumber(content)])
    require(value === undefined || !Number.isNaN(value), `a number from ${content}`);
  parseWorkloadEndpointName(content);
  if (cidr === undefined || network === undefined) return address !== undefined;
  require(tryParseCidr(cidr) === cidr && cidrLength(cidr) === network.length, `${cidr} is canonical`);
  require(cidrContains(cidr, network.address) &&
    cidrContains(cidr, cidrAddress(cidr)), `${cidr} contains its addresses`);
  return true;
}

const isDeep = (content: string): boolean => content.split(/[[{]/).length > 1000;

function readLossless(input: Uint8Array): boolean {
  const content = textOf(input);
  const value = parseLosslessJson(content);
  if (isDeep(content)) return true; // JSON.stringify would overflow the stack
  // Compared as text, because JSON has neither -0 nor Infinity (the parsed value of 1e400).
  const written = stringifyLosslessJson(value);
  requireEqual(stringifyLosslessJson(parseLosslessJson(written)), written, "JSON written and parsed again");
  return true;
}

/** The same processors as in the syncers of Felix, confd and the tunnel allocator. */
const PROCESSORS: Readonly<Partial<Record<KindName, readonly UpdateProcessor[]>>> = {
  ClusterInformation: [clusterInformationProcessor],
  FelixConfiguration: [felixConfigProcessor()],
  IPPool: [poolProcessor(), tunnelPoolProcessor()],
  NetworkPolicy: [policyProcessor],
  GlobalNetworkPolicy: [policyProcessor],
  StagedNetworkPolicy: [policyProcessor],
  StagedGlobalNetworkPolicy: [policyProcessor],
  StagedKubernetesNetworkPolicy: [policyProcessor],
  KubernetesNetworkPolicy: [policyProcessor],
  KubernetesClusterNetworkPolicy: [policyProcessor],
  Tier: [tierProcessor],
  Profile: [profileProcessor],
  NetworkSet: [networkSetProcessor],
  GlobalNetworkSet: [globalNetworkSetProcessor()],
  WorkloadEndpoint: [workloadEndpointProcessor],
  HostEndpoint: [hostEndpointProcessor()],
  Node: [felixNodeProcessor({ usePodCidr: false }), felixNodeProcessor({ usePodCidr: true })],
  BGPConfiguration: [bgpConfigurationProcessor],
  BGPPeer: [bgpPeerProcessor],
  LiveMigration: [liveMigrationProcessor],
  KubernetesEndpointSlice: [endpointSliceProcessor],
  KubernetesService: [kubernetesServiceProcessor],
};

/** Converts a stored value as syncers do. A value that cannot be used must be reported, not thrown. */
function processUpdate(key: ResourceKey, value: unknown): void {
  for (const processor of PROCESSORS[key.kind] ?? []) {
    processor.reset();
    const update = { key, value } as Parameters<UpdateProcessor["process"]>[0];
    for (const derived of processor.process(update, () => {})) keyPath(derived.key);
  }
}

/** The first line is the path in etcd, the rest is the value. */
async function readStored(input: Uint8Array): Promise<boolean> {
  const content = textOf(input);
  const line = content.indexOf("\n");
  const path = content.slice(0, Math.max(line, 0));
  const known = parseKeyPath(path);
  if (known !== undefined)
    requireEqual(parseKeyPath(keyPath(known)), known, "a key written as a path and parsed again");
  const key = parseStoredPath(path);
  if (key === undefined) return false;
  const value = decodeValue<StoredKey>(key, content.slice(line + 1));
  if (!isDeep(content)) {
    const written = encodeValue(key, value);
    requireEqual(encodeValue(key, decodeValue<StoredKey>(key, written)), written, "a value written and decoded again");
  }
  if (key.type !== "resource") return true;
  processUpdate(key, value);
  if (hasSchema(key.kind)) {
    const schema = await loadSchema(key.kind);
    const decoded = schema.decode(value);
    if (decoded.ok) schema.validate(decoded.resource as never, "create", {});
  }
  return true;
}

const collections = [
  new Collections("crd.projectcalico.org/v1", { usePodCidr: false }),
  new Collections("projectcalico.org/v3", { usePodCidr: false }),
];
const KIND_IN_DATASTORE: Readonly<Record<string, KindName>> = {
  Pod: "WorkloadEndpoint",
  VirtualMachineInstanceMigration: "LiveMigration",
  EndpointSlice: "KubernetesEndpointSlice",
  Service: "KubernetesService",
  ClusterNetworkPolicy: "KubernetesClusterNetworkPolicy",
};

/** An object of the API server. Its metadata is valid, as the server guarantees; anything else may be of any type. */
function readKubernetes(input: Uint8Array): boolean {
  let object: KubeObject & { readonly apiVersion?: string };
  try {
    object = parseLosslessJson(textOf(input)) as unknown as KubeObject;
  } catch {
    return false;
  }
  if (!hasValidMetadata(object)) return false;
  const kind = String(object.kind);
  if (kind === "Namespace" || kind === "ServiceAccount") {
    const profile = kind === "Namespace" ? profileFromNamespace(object) : profileFromServiceAccount(object);
    processUpdate({ type: "resource", kind: "Profile", name: profile.metadata.name }, profile);
    return true;
  }
  const isKubernetesPolicy = kind === "NetworkPolicy" && String(object.apiVersion).startsWith("networking.k8s.io/");
  const name = isKubernetesPolicy ? "KubernetesNetworkPolicy" : (KIND_IN_DATASTORE[kind] ?? kind);
  let isAccepted = false;
  for (const each of collections) {
    const collection = collectionOf(each, name);
    const key = collection?.keyOf(object);
    if (collection === undefined || key === undefined) continue;
    const stored = collection.decode(object);
    if (stored === undefined) continue;
    isAccepted = true;
    // The API server requires a namespace for namespaced kinds.
    if (stored.key.type === "resource" && stored.key.namespace !== "") processUpdate(stored.key, stored.value);
  }
  return isAccepted;
}

function collectionOf(all: Collections, name: string) {
  const ipam = {
    IPAMBlock: "block",
    BlockAffinity: "blockAffinity",
    IPAMHandle: "ipamHandle",
    IPAMConfig: "ipamConfig",
  };
  const type = (ipam as Readonly<Record<string, string>>)[name];
  const query = type === undefined ? { type: "resource", kind: name as KindName } : { type };
  try {
    return all.of("List", query as Parameters<Collections["of"]>[1]);
  } catch {
    return undefined; // a kind that the Kubernetes datastore does not have
  }
}

function hasValidMetadata(object: KubeObject): boolean {
  const metadata: unknown = typeof object === "object" && object !== null ? object.metadata : undefined;
  if (typeof metadata !== "object" || metadata === null || Array.isArray(metadata)) return false;
  const { name, namespace, labels, annotations, uid, resourceVersion, ownerReferences } = metadata as Record<
    string,
    unknown
  >;
  const isTextOrAbsent = (value: unknown): boolean => value === undefined || typeof value === "string";
  const isMap = (value: unknown): boolean =>
    value === undefined ||
    (typeof value === "object" &&
      value !== null &&
      !Array.isArray(value) &&
      Object.values(value).every((each) => typeof each === "string"));
  return (
    typeof name === "string" &&
    name !== "" &&
    !name.includes("/") &&
    (namespace === undefined || (typeof namespace === "string" && /^[a-z0-9-]+$/.test(namespace))) &&
    [uid, resourceVersion].every(isTextOrAbsent) &&
    isMap(labels) &&
    isMap(annotations) &&
    ownerReferences === undefined
  );
}

class AnyValueError extends Error {
  static override [Symbol.hasInstance](error: unknown): boolean {
    return isValueError(error);
  }
}

const RESOURCE_WORDS = [
  "metadata",
  "spec",
  "labels",
  "annotations",
  "projectcalico.org/metadata",
  "cni.projectcalico.org/podIPs",
  "all()",
  "has(a)",
  "10.0.0.0/8",
  "fd00::/8",
  "Allow",
  "ingress",
  "namespaceSelector",
];

export const targets: Readonly<Record<string, FuzzTarget>> = {
  selector: {
    about: "selectors of policies, endpoints and peers",
    structure: text,
    dictionary: [
      "&&",
      "||",
      "!",
      "==",
      "!=",
      "in",
      "not in",
      "has(",
      "all()",
      "global()",
      "contains",
      "starts with",
      "{",
      "}",
      "'a'",
      '"b"',
    ],
    rejections: [SelectorError],
    run: readSelector,
  },
  address: {
    about: "addresses, prefixes, durations, quantities and AS numbers as text",
    structure: text,
    dictionary: ["::", ":", ".", "/", "ffff", "::ffff:10.0.0.1", "%eth0", "/128", "0x", "1h2m3s", "100Mi"],
    rejections: [],
    run: readAddress,
  },
  "lossless-json": {
    about: "JSON with integers beyond 2^53",
    structure: json,
    dictionary: ["18446744073709551615", "-9223372036854775808", "1e308", "null"],
    rejections: [SyntaxError],
    run: readLossless,
  },
  "stored-value": {
    about: "keys and values in etcd: v3 resources, blocks, affinities, handles; what syncers make of them",
    structure: json,
    dictionary: RESOURCE_WORDS,
    rejections: [UnreadableValue],
    run: readStored,
  },
  "kubernetes-object": {
    about: "pods, nodes, policies and custom resources of the API server; what syncers make of them",
    structure: json,
    dictionary: RESOURCE_WORDS,
    // The caller of the decoder catches every error and reports the object as unreadable.
    rejections: [AnyValueError, UnreadableValue, WorkloadNameError],
    run: readKubernetes,
  },
};
