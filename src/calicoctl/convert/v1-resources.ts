// Converts resources of calicoctl v1 to v3 resources, with one converter per kind.
import { describeJson } from "../../lib/encoding/lossless-json.ts";
import { API_VERSION, parseAsNumber, workloadEndpointName, WorkloadNameError } from "../../model/index.ts";
import { ConvertFault } from "./fault.ts";
import { Fields } from "./fields.ts";
import {
  addressName,
  cidrName,
  convertName,
  convertNameWithoutDots,
  convertProfileName,
  normalizeName,
} from "./names.ts";
import { checkV1 } from "./v1-check.ts";
import { convertRules, convertSelector, withoutUnset } from "./v1-rules.ts";

export interface V3Document {
  readonly kind: string;
  readonly apiVersion: string;
  readonly metadata: Readonly<Record<string, unknown>>;
  readonly spec: Readonly<Record<string, unknown>>;
  readonly status?: object;
}
interface Converted {
  readonly name: string;
  readonly kind: string;
  readonly metadata?: object;
  readonly spec: Readonly<Record<string, unknown>>;
  readonly status?: object;
}
type Converter = (metadata: Fields, spec: Fields) => Converted;

/** By the name of the v1 kind in lower case. */
const CONVERTERS: Readonly<Record<string, Converter>> = {
  ippool: (metadata, spec) => {
    const cidr = metadata.required("cidr");
    const ipip = spec.child("ipip");
    const enabled = ipip.isTrue("enabled");
    const mode = ipip.text("mode");
    ipip.end();
    return {
      name: cidrName(cidr),
      kind: "IPPool",
      spec: {
        cidr,
        ipipMode: !enabled ? "Never" : mode === "cross-subnet" ? "CrossSubnet" : "Always",
        vxlanMode: "Never",
        natOutgoing: spec.isTrue("nat-outgoing") || undefined,
        disabled: spec.isTrue("disabled") || undefined,
        blockSize: cidr.includes(":") ? 122 : 26,
        nodeSelector: "all()",
        allowedUses: ["Workload", "Tunnel"],
      },
    };
  },
  bgppeer: (metadata, spec) => {
    const peerIP = metadata.required("peerIP");
    const node = metadata.text("node");
    const scope = metadata.required("scope");
    if (scope !== "node" && scope !== "global")
      throw new ConvertFault("metadata.scope", `want node or global, not '${scope}'`);
    if ((scope === "node") !== (node !== undefined))
      throw new ConvertFault("metadata.node", `does not match scope '${scope}'`);
    const owner = node === undefined ? "" : `${normalizeName(node)}.`;
    return {
      name: `${owner}${addressName(peerIP)}`,
      kind: "BGPPeer",
      spec: { asNumber: asNumber(spec), node: node === undefined ? undefined : normalizeName(node), peerIP },
    };
  },
  hostendpoint: (metadata, spec) => {
    const node = normalizeName(metadata.required("node"));
    return {
      name: convertName(`${node}.${metadata.required("name")}`),
      kind: "HostEndpoint",
      metadata: { labels: metadata.map("labels") },
      spec: {
        node,
        interfaceName: spec.text("interfaceName"),
        expectedIPs: listOf(ipv4First(spec.texts("expectedIPs"))),
        profiles: listOf(spec.texts("profiles").map(convertProfileName)),
        ports: convertPorts(spec),
      },
    };
  },
  policy: (metadata, spec) => {
    const ingress = convertRules(spec.any("ingress"), "spec.ingress");
    const egress = convertRules(spec.any("egress"), "spec.egress");
    const doNotTrack = spec.isTrue("doNotTrack");
    const preDNAT = spec.isTrue("preDNAT");
    const types = spec.texts("types").map(convertType);
    const directions = [
      ...(ingress.length > 0 || egress.length === 0 ? ["Ingress"] : []),
      ...(egress.length > 0 ? ["Egress"] : []),
    ];
    return {
      name: convertNameWithoutDots(metadata.required("name")),
      kind: "GlobalNetworkPolicy",
      metadata: { annotations: metadata.map("annotations") },
      spec: {
        order: spec.any("order"),
        ingress: listOf(ingress),
        egress: listOf(egress),
        selector: convertSelector(spec.text("selector")),
        types: types.length > 0 ? types : directions,
        doNotTrack: doNotTrack || undefined,
        preDNAT: preDNAT || undefined,
        // In v1, such policies also applied to forwarded traffic.
        applyOnForward: doNotTrack || preDNAT || undefined,
      },
    };
  },
  profile: (metadata, spec) => {
    const labels = metadata.map("labels") ?? {};
    const tags = metadata.texts("tags");
    const duplicate = tags.find((tag, i) => Object.hasOwn(labels, tag) || tags.indexOf(tag) !== i);
    if (duplicate !== undefined)
      throw new ConvertFault("metadata.tags", `'${duplicate}' is a duplicate tag, or also a label; rename one`);
    const labelsToApply = { ...labels, ...Object.fromEntries(tags.map((tag) => [tag, ""])) };
    return {
      name: convertProfileName(metadata.required("name")),
      kind: "Profile",
      spec: {
        ingress: listOf(convertRules(spec.any("ingress"), "spec.ingress")),
        egress: listOf(convertRules(spec.any("egress"), "spec.egress")),
        labelsToApply: Object.keys(labelsToApply).length === 0 ? undefined : labelsToApply,
      },
    };
  },
  node: (metadata, spec) => {
    const bgp = spec.child("bgp");
    const converted = withoutUnset({
      asNumber: asNumber(bgp),
      ipv4Address: withLength(bgp.text("ipv4Address"), 32),
      ipv6Address: withLength(bgp.text("ipv6Address"), 128),
    });
    bgp.end();
    return {
      name: normalizeName(metadata.required("name")),
      kind: "Node",
      spec: {
        bgp: Object.keys(converted).length === 0 ? undefined : converted,
        orchRefs: listOf(Fields.list(spec.any("orchRefs"), "spec.orchRefs")),
      },
      status: {},
    };
  },
  workloadendpoint: (metadata, spec) => {
    const orchestrator = metadata.required("orchestrator");
    const workload = orchestrator === "libnetwork" ? (metadata.text("workload") ?? "") : metadata.required("workload");
    const [namespace, pod] = orchestrator === "k8s" ? podOf(workload) : ["default", undefined];
    const container = metadata.text("activeInstanceID");
    const identity = withoutUnset({
      node: normalizeName(metadata.required("node")),
      orchestrator: convertName(orchestrator),
      endpoint: convertName(metadata.required("name")),
      pod,
      containerID: orchestrator === "k8s" ? container : orchestrator === "cni" ? workload : undefined,
      workload:
        orchestrator === "libnetwork"
          ? "libnetwork"
          : ["k8s", "cni"].includes(orchestrator)
            ? undefined
            : convertName(workload),
    });
    const { "calico/k8s_ns": oldNamespace, ...kept } = metadata.map("labels") ?? {};
    const labels = oldNamespace === undefined ? kept : { ...kept, "projectcalico.org/namespace": oldNamespace };
    return {
      name: endpointName(identity),
      kind: "WorkloadEndpoint",
      metadata: {
        namespace,
        labels: Object.keys(labels).length === 0 ? undefined : labels,
      },
      spec: {
        ...identity,
        ipNetworks: listOf(ipv4First(spec.texts("ipNetworks"))),
        ipNATs: listOf(Fields.list(spec.any("ipNATs"), "spec.ipNATs")),
        ipv4Gateway: spec.text("ipv4Gateway"),
        ipv6Gateway: spec.text("ipv6Gateway"),
        profiles: listOf(spec.texts("profiles").map(convertProfileName)),
        interfaceName: spec.text("interfaceName"),
        mac: spec.text("mac"),
        ports: convertPorts(spec),
      },
    };
  },
};

export const isV1Kind = (kind: string): boolean => Object.hasOwn(CONVERTERS, kind.toLowerCase());

/** @throws ConvertFault */
export function convertV1(document: unknown): V3Document {
  const top = new Fields(document, "");
  const kind = top.required("kind");
  top.any("apiVersion");
  const convert = CONVERTERS[kind.toLowerCase()];
  if (convert === undefined) throw new ConvertFault("kind", `unknown v1 kind ${kind}`);
  const metadata = top.child("metadata");
  const spec = top.child("spec");
  top.end();
  checkV1(kind, document);
  const converted = convert(metadata, spec);
  metadata.end();
  spec.end();
  return {
    kind: converted.kind,
    apiVersion: API_VERSION,
    metadata: withoutUnset({ name: converted.name, creationTimestamp: null, ...converted.metadata }),
    spec: withoutUnset(converted.spec),
    ...(converted.status === undefined ? {} : { status: converted.status }),
  };
}

/** Sorts IPv4 before IPv6, because v1 stored the two separately. */
const ipv4First = (texts: readonly string[]): readonly string[] =>
  texts.toSorted((a, b) => Number(a.includes(":")) - Number(b.includes(":")));
const listOf = <T>(list: readonly T[]): readonly T[] | undefined => (list.length === 0 ? undefined : list);

/** Parses `64512`, `"64512"` and `"1.10"`. */
function asNumber(fields: Fields): number | undefined {
  const given = fields.any("asNumber");
  if (given === undefined) return undefined;
  const parsed = parseAsNumber(given);
  if (parsed === undefined)
    throw new ConvertFault(fields.name("asNumber"), `${describeJson(given)} is not an AS number`);
  return parsed;
}

/** Adds the prefix length of a single address, if the address has none. */
const withLength = (address: string | undefined, length: number): string | undefined =>
  address === undefined || address.includes("/") ? address : `${address}/${length}`;

function convertType(type: string): string {
  if (type.toLowerCase() === "ingress") return "Ingress";
  if (type.toLowerCase() === "egress") return "Egress";
  throw new ConvertFault("spec.types", `'${type}': want ingress or egress`);
}

function convertPorts(spec: Fields): unknown[] | undefined {
  const ports = Fields.list(spec.any("ports"), "spec.ports").map((item, i) => {
    const port = new Fields(item, `spec.ports[${i}]`);
    const protocol = port.text("protocol");
    const converted = { name: port.text("name"), protocol: protocol?.toUpperCase(), port: port.any("port") };
    port.end();
    return withoutUnset(converted);
  });
  return ports.length === 0 ? undefined : ports;
}

function endpointName(identity: Parameters<typeof workloadEndpointName>[0]): string {
  try {
    return workloadEndpointName(identity);
  } catch (error) {
    if (error instanceof WorkloadNameError) throw new ConvertFault("metadata", error.message);
    throw error;
  }
}

/** In v1, the workload of a pod is named `namespace.pod`. */
function podOf(workload: string): [string, string] {
  const dot = workload.indexOf(".");
  if (dot < 1) throw new ConvertFault("metadata.workload", `'${workload}': want namespace.pod`);
  return [workload.slice(0, dot), workload.slice(dot + 1)];
}
