// Implements `calicoctl datastore migrate export`, which prints the contents of a locked etcd datastore for `import`.
// Resources that the Kubernetes driver derives from the API (Kubernetes network policies, workload endpoints, profiles) are
// not exported. Nodes, and resources that are named after a node, get the names of the Kubernetes nodes.
import type { Datastore, Stored } from "../../../datastore/index.ts";
import { parseLosslessJson } from "../../../lib/encoding/lossless-json.ts";
import {
  encodeValue,
  ignoreUnreadable,
  type IpamConfigKey,
  keyPath,
  KUBERNETES_POLICY_PREFIX,
  readNode,
  type Resource,
  sortRows,
  specFields,
  type StoredKey,
  withSpecFields,
} from "../../../model/index.ts";
import { openChecked } from "../../resources/client.ts";
import type { Call } from "../../table/flags.ts";
import type { datastoreGrammar } from "../../table/datastore.ts";
import { Failure } from "../../command-line/failure.ts";
import type { ManagedKind } from "../../resources/kinds.ts";
import {
  clusterInformation,
  type IpamEntry,
  type IpamExport,
  isLocked,
  MIGRATED_KINDS,
  PART_SEPARATOR,
} from "./shared.ts";
import { toJson } from "../../output/json.ts";
import { documentOf } from "../../output/print.ts";
import { toYaml } from "../../output/yaml.ts";

export async function run(call: Call<typeof datastoreGrammar>): Promise<number> {
  await using store = await openChecked(call, { requests: "many" });
  const information = await clusterInformation(store);
  if (information === undefined || !isLocked(information))
    throw new Failure(
      "Datastore is not locked. Run the `calicoctl datastore migrate lock` command in order to begin migration.",
    );
  if (store.config.type !== "etcdv3")
    throw new Failure(
      `Invalid datastore type: ${store.config.type} to export from for datastore migration. Datastore type must be etcdv3`,
    );
  const parts: string[] = [];
  const nodes = new Map<string, string>();
  for (const kind of MIGRATED_KINDS) {
    const list = await store.list({ kind });
    const items = sortRows(kind, list.items)
      .filter((item) => !(kind === "NetworkPolicy" && item.metadata.name.startsWith(KUBERNETES_POLICY_PREFIX)))
      .map((item) => adapt(kind, clean(item), nodes));
    parts.push(toYaml(await documentOf([{ type: "list", kind, list: { items, revision: list.revision } }])), "---\n");
  }
  parts.push(
    PART_SEPARATOR,
    toJson(await documentOf([{ type: "one", kind: "ClusterInformation", resource: information }])),
  );
  parts.push(PART_SEPARATOR, toJson(await exportIpam(store.datastore, nodes)));
  call.io.out(parts.join(""));
  return 0;
}

/** Removes metadata that is specific to this datastore. */
function clean(resource: Resource): Resource {
  const { name, namespace, labels, annotations } = resource.metadata;
  return {
    ...resource,
    metadata: {
      name,
      ...(namespace === undefined ? {} : { namespace }),
      ...(labels === undefined ? {} : { labels }),
      ...(annotations === undefined ? {} : { annotations }),
    },
  };
}

function adapt(kind: ManagedKind, resource: Resource, nodes: Map<string, string>): Resource {
  const { name } = resource.metadata;
  if (kind === "Node") {
    const kubernetesName = kubernetesNameOf(resource);
    nodes.set(name, kubernetesName);
    return renamed(resource, kubernetesName);
  }
  if (kind !== "FelixConfiguration" && kind !== "BGPConfiguration") return resource;
  const node = name.startsWith("node.") ? nodes.get(name.slice("node.".length)) : undefined;
  const moved = node === undefined ? resource : renamed(resource, `node.${node}`);
  return kind === "FelixConfiguration" ? withTitleCaseActions(moved) : moved;
}

const renamed = (resource: Resource, name: string): Resource => ({
  ...resource,
  metadata: { ...resource.metadata, name },
});

function kubernetesNameOf(node: Resource): string {
  const { orchRefs } = readNode(node, ignoreUnreadable);
  const name = orchRefs.findLast((ref) => ref.orchestrator === "k8s")?.nodeName;
  if (name === undefined)
    throw new Failure(
      `Node ${node.metadata.name} has no orchRefs entry for k8s: the Kubernetes API has only Kubernetes nodes; add an entry or delete the node`,
    );
  return name;
}

/** Older programs accepted any case for these values; the Kubernetes API accepts only this one. */
function withTitleCaseActions(config: Resource): Resource {
  const spec = specFields(config);
  const actions = [
    "defaultEndpointToHostAction",
    "iptablesFilterAllowAction",
    "iptablesMangleAllowAction",
    "iptablesFilterDenyAction",
  ].flatMap((field) => {
    const value = spec[field];
    return typeof value === "string" ? [[field, value.charAt(0).toUpperCase() + value.slice(1).toLowerCase()]] : [];
  });
  return withSpecFields(config, Object.fromEntries(actions));
}

async function exportIpam(datastore: Datastore, nodes: ReadonlyMap<string, string>): Promise<IpamExport> {
  const rename = (host: string) => nodes.get(host) ?? host;
  const affinities = (await datastore.list({ type: "blockAffinity" })).items.map((item) =>
    entryOf({ ...item, key: { ...item.key, host: rename(item.key.host) } }),
  );
  const blocks = (await datastore.list({ type: "block" })).items.map((item) => {
    const { affinity, attributes } = item.value;
    const host = /^host:(.+)$/.exec(affinity ?? "")?.[1];
    const value = {
      ...item.value,
      ...(host === undefined ? {} : { affinity: `host:${rename(host)}` }),
      attributes: attributes.map((attribute) =>
        attribute.secondary?.["node"] === undefined
          ? attribute
          : { ...attribute, secondary: { ...attribute.secondary, node: rename(attribute.secondary["node"]) } },
      ),
    };
    return entryOf({ ...item, value });
  });
  const handles = (await datastore.list({ type: "ipamHandle" })).items.map(entryOf);
  const [config] = (await datastore.list({ type: "ipamConfig" })).items as readonly Stored<IpamConfigKey>[];
  return {
    ...(affinities.length === 0 ? {} : { block_affinities: affinities }),
    ...(blocks.length === 0 ? {} : { blocks }),
    ...(handles.length === 0 ? {} : { handles }),
    ...(config === undefined ? {} : { config: entryOf(config) }),
  };
}

function entryOf<K extends StoredKey>({ key, value }: Stored<K>): IpamEntry {
  return { Key: keyPath(key), Value: parseLosslessJson(encodeValue(key, value)), TTL: 0 };
}
