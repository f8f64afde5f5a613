// Converts pods to workload endpoints, and builds the status that the CNI plugin writes to a pod.
import {
  addressBits,
  cidrAddress,
  cidrLength,
  hostCidr,
  type Cidr,
  ipVersion,
  tryParseAddress,
  tryParseCidr,
} from "../../lib/ip/ip.ts";
import { JsonReader } from "../../lib/encoding/json-reader.ts";
import { quote } from "../../lib/shorten.ts";
import { NAMESPACE_LABEL, NAMESPACE_PROFILE, ORCHESTRATOR_LABEL, SERVICE_ACCOUNT_LABEL } from "../labels.ts";
import { API_VERSION, type Labels, type Resource } from "../resource.ts";
import { NotConvertible, type ReportProblem } from "../validation/value-error.ts";
import { workloadEndpointName } from "../workload-name.ts";
import { namesOf, originOf } from "./metadata.ts";
import { type QosControlsJson, qosFromAnnotations } from "./pod-qos.ts";
import { serviceAccountProfileName } from "./profiles.ts";

const POD_IP_ANNOTATION = "cni.projectcalico.org/podIP";
const POD_IPS_ANNOTATION = "cni.projectcalico.org/podIPs";
const CONTAINER_ID_ANNOTATION = "cni.projectcalico.org/containerID";
const AWS_IPS_ANNOTATION = "vpc.amazonaws.com/pod-ips";
const FLOATING_IPS_ANNOTATION = "cni.projectcalico.org/floatingIPs";
const SOURCE_PREFIXES_ANNOTATION = "cni.projectcalico.org/allowedSourcePrefixes";
const NETWORK_STATUS_ANNOTATION = "k8s.v1.cni.cncf.io/network-status";
/**
 * Condition in the pod's status that the CNI plugin writes: `True` after ADD, with the addresses as in the annotation
 * `podIPs` as its message and the container's ID as its reason; `False` after DEL. If the pod's interface does not have
 * the name that is computed from the pod's name, the message ends with ` interface=NAME`. The creator of a pod can write
 * its annotations but not its status.
 */
const ASSIGNED_CONDITION = "cni.projectcalico.org/AddressesAssigned";
const INTERFACE_SEPARATOR = " interface=";
const FINISHED_PHASES: ReadonlySet<string> = new Set(["Failed", "Succeeded", "Completed"]);
const MAX_LABEL_VALUE = 63;

export interface PodEndpointSpec {
  readonly orchestrator: "k8s";
  readonly node: string;
  readonly pod: string;
  readonly endpoint: "eth0";
  readonly containerID?: string;
  readonly serviceAccountName?: string;
  readonly ipNetworks?: readonly Cidr[];
  readonly ipNATs?: readonly { readonly internalIP: string; readonly externalIP: string }[];
  readonly profiles: readonly string[];
  readonly interfaceName: string;
  readonly ports?: readonly PodPort[];
  readonly allowSpoofedSourcePrefixes?: readonly Cidr[];
  readonly qosControls?: QosControlsJson;
}
interface PodPort {
  readonly name: string;
  readonly protocol: string;
  readonly port: number;
  readonly hostPort: number;
  readonly hostIP: string;
}

/** The format that the API server requires. An endpoint on a node with another name might have no valid key. */
const NODE_NAME = /^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$/;

/** Whether the pod is a workload: it does not use the host's network, and it is scheduled to a node. */
export function isWorkloadPod(json: unknown): boolean {
  const spec = new JsonReader(json).object("spec");
  return spec !== undefined && spec.flag("hostNetwork") !== true && NODE_NAME.test(spec.text("nodeName") ?? "");
}

/** Returns the name of a pod's interface on the host: the prefix and 11 digits of a hash. */
export function podInterfaceName(namespace: string, pod: string, prefix = "cali"): string {
  return prefix + new Bun.CryptoHasher("sha1").update(`${namespace}.${pod}`).digest("hex").slice(0, 11);
}

const isPodInterfaceName = (name: string, prefix = "cali"): boolean =>
  name.startsWith(prefix) && /^[0-9a-f]{11}$/.test(name.slice(prefix.length));

/** @param options.interfacePrefix first of Felix's interface prefixes */
export function workloadEndpointFromPod(
  json: unknown,
  report: ReportProblem,
  options: { readonly interfacePrefix?: string } = {},
): Resource<"WorkloadEndpoint", PodEndpointSpec> {
  const pod = new JsonReader(json);
  const { name, namespace, labels, annotations } = namesOf(pod);
  const spec = pod.object("spec") ?? pod.fail("spec", "an object");
  const node = spec.filled("nodeName") ?? spec.fail("nodeName", "the node the pod runs on");
  const serviceAccount = spec.filled("serviceAccountName");
  const { addresses: networks, containerId, recordedInterface } = attachmentOf(pod, annotations);
  const isInterface = recordedInterface !== undefined && isPodInterfaceName(recordedInterface, options.interfacePrefix);
  if (recordedInterface !== undefined && !isInterface)
    report(
      `${ASSIGNED_CONDITION}: interface ${JSON.stringify(recordedInterface)} ignored: want the prefix and 11 hex digits`,
    );
  if (networks.length === 0 && !isFinished(pod)) reportClaims(annotations, report);
  const nats = networks.length === 0 ? [] : floatingAddresses(annotations, networks);
  const prefixes = sourcePrefixes(annotations);
  const ports = portsOf(spec);
  const qos = qosFromAnnotations(annotations, report);
  const generateName = pod.object("metadata")?.filled("generateName");
  const networkStatus = annotations[NETWORK_STATUS_ANNOTATION];
  return {
    apiVersion: API_VERSION,
    kind: "WorkloadEndpoint",
    metadata: {
      ...originOf(pod, "same"),
      name: workloadEndpointName({ node, orchestrator: "k8s", pod: name, endpoint: "eth0" }),
      namespace,
      ...(generateName === undefined ? {} : { generateName }),
      labels: podLabels(labels, namespace, serviceAccount),
      ...(networkStatus === undefined ? {} : { annotations: { [NETWORK_STATUS_ANNOTATION]: networkStatus } }),
    },
    spec: {
      orchestrator: "k8s",
      node,
      ...(containerId === undefined ? {} : { containerID: containerId }),
      pod: name,
      endpoint: "eth0",
      ...(serviceAccount === undefined ? {} : { serviceAccountName: serviceAccount }),
      ...(networks.length === 0 ? {} : { ipNetworks: networks }),
      ...(nats.length === 0 ? {} : { ipNATs: nats }),
      profiles: [
        NAMESPACE_PROFILE + namespace,
        ...(serviceAccount === undefined ? [] : [serviceAccountProfileName(namespace, serviceAccount)]),
      ],
      interfaceName: isInterface ? recordedInterface : podInterfaceName(namespace, name, options.interfacePrefix),
      ...(ports.length === 0 ? {} : { ports }),
      ...(prefixes.length === 0 ? {} : { allowSpoofedSourcePrefixes: prefixes }),
      ...(qos === undefined ? {} : { qosControls: qos }),
    },
  };
}

/**
 * The addresses that must stay assigned to a pod: those that the kubelet reports and those that the CNI plugin assigned,
 * even if one of the two is out of date. None for a finished pod. Annotations have no influence.
 * @throws NotConvertible if an address does not parse
 */
export function podAddressesInUse(json: unknown): readonly Cidr[] {
  const pod = new JsonReader(json);
  if (isFinished(pod)) return [];
  const status = pod.object("status");
  return [...new Set([...reportedAddresses(status), ...assignedAddresses(conditionOf(status))])];
}

/**
 * The addresses of a finished pod may already belong to another pod. Only the phase decides. Calico also treats a pod
 * with a deletion timestamp and an empty annotation `podIP` as finished; a tenant could write both while the pod runs.
 */
const isFinished = (pod: JsonReader): boolean => FINISHED_PHASES.has(pod.object("status")?.text("phase") ?? "");

interface Attachment {
  readonly addresses: readonly Cidr[];
  /** The container in which the pod has its addresses. */
  readonly containerId?: string;
  /** The name of its interface, if the CNI plugin chose another than the computed one. Not validated. */
  readonly recordedInterface?: string;
}

/**
 * The condition of the CNI plugin decides, because the kubelet reports later: until its report after a DEL or a new ADD,
 * `podIPs` still has the released address. A pod without the condition was attached by Calico's plugin or by an old
 * version of calico-ts: it has the addresses that the kubelet reports. Annotations give no address, because they could
 * name another pod's.
 */
function attachmentOf(pod: JsonReader, annotations: Labels): Attachment {
  const status = pod.object("status");
  const isRunning = !isFinished(pod);
  const condition = conditionOf(status);
  const reported = isRunning ? reportedAddresses(status) : [];
  const assigned = isRunning ? assignedAddresses(condition) : [];
  const isSame = new Set(reported).symmetricDifference(new Set(assigned)).size === 0;
  const isUsed = condition !== undefined && (isSame || !isOutdated(condition, status));
  const containerId = (isUsed ? condition.filled("reason") : undefined) ?? annotations[CONTAINER_ID_ANNOTATION];
  const [, recordedInterface] = isUsed ? messageParts(condition) : [];
  return {
    addresses: isUsed ? assigned : reported,
    ...(containerId === undefined || containerId === "" ? {} : { containerId }),
    ...(recordedInterface === undefined ? {} : { recordedInterface }),
  };
}

const conditionOf = (status: JsonReader | undefined): JsonReader | undefined =>
  status?.objects("conditions").find((each) => each.text("type") === ASSIGNED_CONDITION);

const assignedAddresses = (condition: JsonReader | undefined): readonly Cidr[] =>
  split(messageParts(condition)[0]).map(parsePodAddress);

/** The addresses, and the interface if its name is not the computed one. */
function messageParts(condition: JsonReader | undefined): readonly [addresses?: string, interfaceName?: string] {
  if (condition?.text("status") !== "True") return [];
  const message = condition.text("message") ?? "";
  const end = message.indexOf(INTERFACE_SEPARATOR);
  return end < 0 ? [message] : [message.slice(0, end), message.slice(end + INTERFACE_SEPARATOR.length)];
}

/**
 * Whether another program, such as Calico's plugin, has attached the pod again since the condition was written. It does
 * not change the condition. A container that started later than the condition runs in the network of that condition or
 * in a newer one, and the kubelet reports containers together with the addresses of their network.
 */
function isOutdated(condition: JsonReader, status: JsonReader | undefined): boolean {
  const writtenAt = condition.text("lastTransitionTime");
  if (writtenAt === undefined || status === undefined) return false;
  const containers = [...status.objects("containerStatuses"), ...status.objects("initContainerStatuses")];
  return containers.some((container) =>
    ["state", "lastState"].some((state) =>
      ["running", "terminated"].some((kind) => {
        const startedAt = container.object(state)?.object(kind)?.text("startedAt");
        return startedAt !== undefined && startedAt > writtenAt; // both in seconds and UTC, on the clock of one node
      }),
    ),
  );
}

function reportedAddresses(status: JsonReader | undefined): readonly Cidr[] {
  const reported = status?.objects("podIPs").flatMap((entry) => entry.filled("ip") ?? []) ?? [];
  return (reported.length > 0 ? reported : split(status?.text("podIP"))).map(parsePodAddress);
}

function reportClaims(annotations: Labels, report: ReportProblem): void {
  for (const name of [POD_IPS_ANNOTATION, POD_IP_ANNOTATION, AWS_IPS_ANNOTATION]) {
    const claimed = split(annotations[name]).map(parsePodAddress);
    if (claimed.length === 0) continue;
    report(`${name}: ${describeClaim(claimed)} ignored until the pod's status confirms the address`);
    break;
  }
}

const split = (text: string | undefined): readonly string[] =>
  text === undefined || text === "" ? [] : text.split(",");

/** A pod has single addresses: a prefix (10.0.0.0/8) would route the addresses of others to it. */
function parsePodAddress(text: string): Cidr {
  const network = tryParseCidr(text.trim());
  if (network === undefined) throw new NotConvertible(`pod address ${quote(text)} is not an IP address`);
  if (cidrLength(network) !== addressBits(ipVersion(network)))
    throw new NotConvertible(`pod address ${quote(text)} is a prefix, not a single address`);
  return network;
}

const MOST_SHOWN = 4;
const describeClaim = (claimed: readonly Cidr[]): string =>
  claimed.slice(0, MOST_SHOWN).join(", ") + (claimed.length > MOST_SHOWN ? `, … (${claimed.length} in all)` : "");

function podLabels(own: Labels, namespace: string, serviceAccount: string | undefined): Labels {
  const isLabel = serviceAccount !== undefined && serviceAccount.length < MAX_LABEL_VALUE;
  return {
    ...own,
    [NAMESPACE_LABEL]: namespace,
    [ORCHESTRATOR_LABEL]: "k8s",
    ...(isLabel ? { [SERVICE_ACCOUNT_LABEL]: serviceAccount } : {}),
  };
}

/** A floating address maps to the pod's address of the same IP version. Without such an address it is ignored. */
function floatingAddresses(
  annotations: Labels,
  networks: readonly Cidr[],
): readonly { readonly internalIP: string; readonly externalIP: string }[] {
  return listAnnotation(annotations, FLOATING_IPS_ANNOTATION).flatMap((external) => {
    const family = external.includes(":") ? 6 : 4;
    const internal = networks.findLast((network) => ipVersion(network) === family);
    return internal === undefined ? [] : [{ internalIP: cidrAddress(internal), externalIP: external }];
  });
}

function sourcePrefixes(annotations: Labels): readonly Cidr[] {
  return listAnnotation(annotations, SOURCE_PREFIXES_ANNOTATION).map((text) => {
    const prefix = text.includes("/") ? tryParseCidr(text) : undefined;
    if (prefix === undefined) throw new NotConvertible(`${SOURCE_PREFIXES_ANNOTATION}: ${quote(text)} is not a CIDR`);
    return prefix;
  });
}

function listAnnotation(annotations: Labels, name: string): readonly string[] {
  const text = annotations[name];
  if (text === undefined || text === "") return [];
  try {
    const list: unknown = JSON.parse(text);
    if (list === null) return [];
    if (Array.isArray(list) && list.every((item) => typeof item === "string")) return list as readonly string[];
  } catch {
    // falls through: the same message for invalid JSON and for other values than a list
  }
  throw new NotConvertible(`${name}: want a JSON list of texts`);
}

const PORT_PROTOCOLS: ReadonlySet<string> = new Set(["TCP", "UDP", "SCTP"]);

/** Returns the named ports, which rules can match by name, and the host ports. */
function portsOf(spec: JsonReader): readonly PodPort[] {
  const containers = [...spec.objects("containers"), ...spec.objects("initContainers")];
  return containers.flatMap((container) =>
    container.objects("ports").flatMap((port) => {
      const number = port.whole("containerPort") ?? 0;
      const name = port.text("name") ?? "";
      const hostPort = port.whole("hostPort") ?? 0;
      const protocol = port.filled("protocol") ?? "TCP";
      if (number === 0 || (name === "" && hostPort === 0) || !PORT_PROTOCOLS.has(protocol)) return [];
      return [{ name, protocol, port: number, hostPort, hostIP: port.text("hostIP") ?? "" }];
    }),
  );
}

/** The changes that the CNI plugin makes in one patch of a pod's status. */
interface PodPatch {
  readonly metadata: { readonly annotations: Labels };
  readonly status: { readonly conditions: readonly object[] };
}

/**
 * Records the addresses that were assigned to a pod, so that policy need not wait for the kubelet, and its interface if
 * that does not have the computed name. calico-ts reads the condition; the annotations are for Calico and for people.
 * @param options.interfacePrefix first of Felix's interface prefixes
 * @returns undefined if the endpoint has no addresses
 */
export function podPatch(
  endpoint: Partial<Pick<PodEndpointSpec, "pod" | "containerID" | "interfaceName">> & {
    readonly namespace?: string;
    readonly ipNetworks?: readonly string[];
  },
  now: Date,
  options: { readonly interfacePrefix?: string } = {},
): PodPatch | undefined {
  const networks = (endpoint.ipNetworks ?? []).map((text) => {
    const address = tryParseAddress(text);
    return address === undefined ? text : hostCidr(address);
  });
  const [first] = networks;
  if (first === undefined) return undefined;
  const annotations = {
    [POD_IP_ANNOTATION]: first,
    [POD_IPS_ANNOTATION]: networks.join(","),
    ...(endpoint.containerID === undefined ? {} : { [CONTAINER_ID_ANNOTATION]: endpoint.containerID }),
  };
  return {
    metadata: { annotations },
    status: {
      conditions: [
        assignedCondition(networks.join(",") + interfaceSuffix(endpoint, options), endpoint.containerID, now),
      ],
    },
  };
}

/** Empty for a name of another form: only a dataplane of another vendor chooses such names. */
function interfaceSuffix(
  { namespace = "", pod = "", interfaceName = "" }: Parameters<typeof podPatch>[0],
  { interfacePrefix }: { readonly interfacePrefix?: string },
): string {
  const isComputed = interfaceName === podInterfaceName(namespace, pod, interfacePrefix);
  return isComputed || !isPodInterfaceName(interfaceName, interfacePrefix) ? "" : INTERFACE_SEPARATOR + interfaceName;
}

/** Records that a pod's addresses are free. */
export const podErasure = (now: Date): PodPatch => ({
  metadata: { annotations: { [POD_IP_ANNOTATION]: "", [POD_IPS_ANNOTATION]: "" } },
  status: { conditions: [assignedCondition("", undefined, now)] },
});

const assignedCondition = (message: string, containerId: string | undefined, now: Date): object => ({
  type: ASSIGNED_CONDITION,
  status: message === "" ? "False" : "True",
  reason: containerId ?? "",
  message,
  lastTransitionTime: now.toISOString().replace(/\.\d+Z$/, "Z"),
});
