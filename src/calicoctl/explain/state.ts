// Loads the resources that explain evaluates, from a datastore or from a directory of YAML files with objects of Calico and
// Kubernetes. An invalid object is reported and skipped, as Felix does.
import { DEFAULT_ALLOW_PROFILE, NotServed } from "../../datastore/index.ts";
import {
  API_VERSION,
  describeValue,
  type FieldFault,
  isWorkloadPod,
  type KindName,
  loadSchemas,
  nodeFromKubernetes,
  profileFromNamespace,
  profileFromServiceAccount,
  type Resource,
  workloadEndpointFromPod,
} from "../../model/index.ts";
import { entriesFromResources, PolicyState, STATE_KINDS } from "../../policy/index.ts";
import { openChecked } from "../resources/client.ts";
import type { Call } from "../table/flags.ts";
import type { explainGrammar } from "../table/explain.ts";
import { Failure } from "../command-line/failure.ts";
import { describePlace } from "../input/fault.ts";
import { readSources, type Source } from "../input/files.ts";
import { toValue } from "../input/values.ts";
import { lineAt } from "../input/place.ts";
import { type Node, parseYaml } from "../input/yaml.ts";
import { isManagedKind, type ManagedKind } from "../resources/kinds.ts";

const KUBERNETES_KINDS: readonly KindName[] = [
  "KubernetesNetworkPolicy",
  "KubernetesClusterNetworkPolicy",
  "KubernetesEndpointSlice",
];

export interface LoadedState {
  readonly state: PolicyState;
  /** All resources that were read, including those that are not part of policy, such as pools. */
  readonly resources: readonly Resource[];
}

type StateCall = Call<typeof explainGrammar>;

export async function loadState(call: StateCall): Promise<LoadedState> {
  const directory = call.flags.from;
  const resources =
    directory === undefined ? await resourcesOfDatastore(call) : await resourcesOfDirectory(directory, call);
  const policyResources = resources.filter(({ kind }) => kind !== "IPPool");
  const entries = entriesFromResources(policyResources, ({ kind, metadata }, reason) => {
    const name = metadata.namespace === undefined ? metadata.name : `${metadata.namespace}/${metadata.name}`;
    call.io.err(`Skipped: ${kind}(${name}): ${reason}\n`);
  });
  return { state: new PolicyState(entries), resources };
}

async function resourcesOfDatastore(call: StateCall): Promise<readonly Resource[]> {
  await using store = await openChecked(call);
  const lists = await Promise.all([
    ...[...STATE_KINDS, "IPPool" as const].map(async (kind) => (await store.list({ kind })).items),
    ...(store.datastore.name === "kubernetes" ? KUBERNETES_KINDS : []).map(async (kind) => {
      try {
        return (await store.datastore.list({ type: "resource", kind })).items.map((item) => item.value as Resource);
      } catch (error) {
        if (error instanceof NotServed && error.isOptional) return []; // this cluster does not serve the API
        throw error;
      }
    }),
  ]);
  return lists.flat();
}

async function resourcesOfDirectory(directory: string, call: StateCall): Promise<readonly Resource[]> {
  const sources = readSources(directory, { recursive: true }, call.io);
  if (sources.length === 0) throw new Failure(`No YAML or JSON files in ${directory}`);
  const resources: Resource[] = [DEFAULT_ALLOW_PROFILE as Resource];
  for (const source of sources)
    for (const { number, root } of parseYaml(source.text, source.file, call.io.err))
      for (const node of root === undefined ? [] : objectsOf(root))
        resources.push(...(await convert(toValue(node), (reason) => report(call, source, number, node, reason))));
  return resources;
}

/** Returns the objects of a document: the document itself, the items of a YAML list, or the items of a List object. */
function objectsOf(root: Node): readonly Node[] {
  if (root.kind === "scalar") return [];
  if (root.kind === "list") return root.items.flatMap(objectsOf);
  const kind = root.entries.get("kind")?.node;
  const items = root.entries.get("items")?.node;
  const isList = kind?.kind === "scalar" && kind.text.endsWith("List");
  if (!isList || items?.kind !== "list") return [root];
  const item = kind.text.slice(0, -"List".length);
  return item === "" ? items.items.flatMap(objectsOf) : items.items.map((node) => withIdentity(node, root, item));
}

/** Adds `kind` and `apiVersion` to an item of a typed list, which may omit them. */
function withIdentity(node: Node, list: Node, kind: string): Node {
  if (node.kind !== "map" || list.kind !== "map") return node;
  const entries = new Map(node.entries);
  const word = (text: string) =>
    ({ offset: node.offset, node: { kind: "scalar", offset: node.offset, text, value: text, plain: false } }) as const;
  if (!entries.has("kind")) entries.set("kind", word(kind));
  const version = list.entries.get("apiVersion");
  if (!entries.has("apiVersion") && version !== undefined) entries.set("apiVersion", version);
  return { ...node, entries };
}

function report(call: StateCall, source: Source, document: number, node: Node, reason: string): void {
  const place = describePlace({ file: source.file, document, line: lineAt(source.text, node.offset) });
  call.io.err(`Skipped: ${place}: ${reason}\n`);
}

type Report = (reason: string) => void;
type Raw = Readonly<Record<string, unknown>> & { readonly metadata?: { readonly namespace?: string } };

/** Converts an object of Calico or Kubernetes to resources. Objects that are not related to policy are ignored. */
async function convert(value: unknown, problem: Report): Promise<readonly Resource[]> {
  const raw = (typeof value === "object" && value !== null ? value : {}) as Raw;
  const kind = String(raw["kind"] ?? "");
  const identity = `${String(raw["apiVersion"] ?? "")} ${kind}`;
  if (raw["apiVersion"] === API_VERSION) return isManagedKind(kind) ? validated(kind, raw, problem) : [];
  try {
    switch (identity) {
      case "v1 Pod":
        return isWorkloadPod(inDefault(raw)) ? [workloadEndpointFromPod(inDefault(raw), problem)] : [];
      case "v1 Namespace":
        return [profileFromNamespace(raw)];
      case "v1 ServiceAccount":
        return [profileFromServiceAccount(inDefault(raw))];
      case "v1 Node":
        return [nodeFromKubernetes(raw)];
      case "networking.k8s.io/v1 NetworkPolicy":
        return [asKind("KubernetesNetworkPolicy", inDefault(raw))];
      case "discovery.k8s.io/v1 EndpointSlice":
        return [asKind("KubernetesEndpointSlice", inDefault(raw))];
      default:
        return /^policy\.networking\.k8s\.io\/\S+ ClusterNetworkPolicy$/.test(identity)
          ? [asKind("KubernetesClusterNetworkPolicy", raw)]
          : [];
    }
  } catch (error) {
    problem(error instanceof Error ? error.message : String(error));
    return [];
  }
}

async function validated(kind: ManagedKind, raw: Raw, problem: Report): Promise<readonly Resource[]> {
  const { loadSchema } = await loadSchemas();
  const schema = await loadSchema(kind);
  const result = schema.validate(isNamespacedKind(kind) ? inDefault(raw) : raw, "stored");
  if (result.ok) return [result.resource];
  problem(result.faults.map(describeFault).join("; "));
  return [];
}

const describeFault = ({ field, value, reason }: FieldFault): string =>
  `${field}${value === undefined ? "" : ` = '${describeValue(value)}'`} (${reason})`;

const isNamespacedKind = (kind: ManagedKind): boolean =>
  ["NetworkPolicy", "StagedNetworkPolicy", "StagedKubernetesNetworkPolicy", "NetworkSet", "WorkloadEndpoint"].includes(
    kind,
  );

const inDefault = (raw: Raw): Raw => ({ ...raw, metadata: { namespace: "default", ...raw.metadata } });

const asKind = (kind: KindName, raw: Raw): Resource =>
  ({ spec: {}, ...raw, apiVersion: API_VERSION, kind }) as unknown as Resource;
