// Reads a directory that describes a cluster: resources in the format of calicoctl, and block affinities as `kubectl get`
// prints them. Other objects are ignored, so that the directory may contain everything that is applied to the cluster.
import { API_VERSION, type BlockAffinity, loadSchemas, type Resource, type ResourceOf } from "../../model/index.ts";
import type { CommandIo } from "../../lib/command-line/io.ts";
import { Failure } from "../command-line/failure.ts";
import { InputFault } from "./fault.ts";
import { readSources, type Source } from "./files.ts";
import { lineAt } from "./place.ts";
import { decode, identityOf, objectsOf } from "./resources.ts";
import { toValue } from "./values.ts";
import { type MapNode, type Node, parseYaml } from "./yaml.ts";

export interface StoredBlock {
  readonly host: string;
  readonly cidr: string;
  readonly affinity: BlockAffinity;
}

export interface ClusterFiles {
  readonly resources: readonly Resource[];
  readonly blocks: readonly StoredBlock[];
}

export async function readCluster(directory: string, io: CommandIo): Promise<ClusterFiles> {
  const resources: Resource[] = [];
  const blocks: StoredBlock[] = [];
  for (const source of readSources(directory, { recursive: true }, io))
    for (const { number, root } of parseYaml(source.text, source.file, io.err))
      for (const node of root === undefined ? [] : itemsOf(root)) {
        const { kind, apiVersion } = identityOf(node);
        if (kind === "BlockAffinity") blocks.push(...(await blockOf(source, node)));
        else if (apiVersion === API_VERSION)
          for (const each of objectsOf(source, number, node))
            resources.push((await decode(source, number, each)).resource);
      }
  if (resources.length === 0) throw new Failure(`No resources in ${directory}`);
  return { resources, blocks };
}

/** Returns the objects of a document, and the items of `kind: List` and `kind: BlockAffinityList`. */
function itemsOf(root: Node): readonly MapNode[] {
  if (root.kind === "scalar") return [];
  if (root.kind === "list") return root.items.flatMap(itemsOf);
  const items = root.entries.get("items")?.node;
  return /^(BlockAffinity)?List$/.test(identityOf(root).kind) && items?.kind === "list"
    ? items.items.flatMap(itemsOf)
    : [root];
}

/** Accepts any apiVersion, because the custom resource of each version has the same fields. */
async function blockOf(source: Source, node: MapNode): Promise<readonly StoredBlock[]> {
  const { loadSchema } = await loadSchemas();
  const schema = await loadSchema("BlockAffinity");
  const decoded = schema.decode({ ...(toValue(node) as object), apiVersion: API_VERSION });
  if (!decoded.ok) {
    const [fault] = decoded.faults;
    throw new InputFault(
      { file: source.file, line: lineAt(source.text, node.offset) },
      `BlockAffinity: ${fault?.field} ${fault?.reason}`,
    );
  }
  const { spec } = decoded.resource as ResourceOf<"BlockAffinity">;
  const { node: host, cidr, state, deleted, type } = spec;
  return type === "virtual" ? [] : [{ host, cidr, affinity: { state, deleted } }];
}
